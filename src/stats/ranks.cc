#include "stats/ranks.h"

#include <algorithm>
#include <vector>

namespace headrace {

double AreaUnderCurve(std::span<const double> smaller, std::span<const double> larger) {
  if (smaller.empty() || larger.empty()) return 0.5;
  std::vector<double> sorted(smaller.begin(), smaller.end());
  std::ranges::sort(sorted);
  double sum = 0;
  for (const double value : larger) {
    const auto [low, high] = std::ranges::equal_range(sorted, value);
    sum += static_cast<double>(low - sorted.begin()) + static_cast<double>(high - low) / 2;
  }
  return sum / (static_cast<double>(smaller.size()) * static_cast<double>(larger.size()));
}

}  // namespace headrace
