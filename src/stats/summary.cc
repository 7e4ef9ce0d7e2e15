#include "stats/summary.h"

#include <algorithm>
#include <vector>

namespace headrace {

double Quantile(std::span<const double> values, double q) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

Summary Summarise(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [least, largest] = std::ranges::minmax(values);
  return {Quantile(values, 0.5), least, largest, values.size()};
}

}  // namespace headrace
