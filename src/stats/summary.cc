#include "stats/summary.h"

#include <algorithm>
#include <numeric>

namespace headrace {

namespace {

double QuantileOfSorted(std::span<const double> sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - static_cast<double>(below));
}

}  // namespace

double Quantile(std::span<const double> values, double q) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  return QuantileOfSorted(sorted, q);
}

Summary Summarise(std::span<const double> values) {
  if (values.empty()) return {};
  const auto [least, largest] = std::ranges::minmax(values);
  return {Quantile(values, 0.5), least, largest, values.size()};
}

Distribution Describe(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size()),
          QuantileOfSorted(values, 0.5),
          QuantileOfSorted(values, 0.9),
          QuantileOfSorted(values, 0.99),
          values.back(),
          values.size()};
}

double JainIndex(std::span<const double> shares) {
  double sum = 0, squares = 0;
  for (double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(shares.size()) * squares) : 1;
}

}  // namespace headrace
