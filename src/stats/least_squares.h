// Fits a line through measurements: coefficients that are no less than zero. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace headrace {

// So many coefficients can be told apart by trying every choice of those that are zero.
constexpr size_t kCoefficientsMax = 10;

// x >= 0 that makes the sum of (features . x - value)^2 least. `features` row by row, `columns` each. Exact: the best
// of all 2^columns choices of columns, each by its normal equations; all zero when nothing fits better.
// REQUIRES: 1 <= columns <= kCoefficientsMax, features.size() == values.size() * columns.
std::vector<double> FitNonNegative(std::span<const double> features, size_t columns, std::span<const double> values);

}  // namespace headrace
