#include "stats/least_squares.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace headrace {
namespace {

using Row = std::array<double, kCoefficientsMax + 1>;
using Matrix = std::array<Row, kCoefficientsMax>;

// Pivots below this share of the largest are columns that the others make up.
constexpr double kSingular = 1e-12;

// Gauss with the largest pivot of each column; the right side is column n.
std::optional<std::vector<double>> Solve(Matrix a, size_t n) {
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r)
      if (std::abs(a[r][c]) > std::abs(a[pivot][c])) pivot = r;
    if (std::abs(a[pivot][c]) < kSingular) return std::nullopt;
    std::swap(a[c], a[pivot]);
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = a[r][c] / a[c][c];
      for (size_t k = c; k <= n; ++k) a[r][k] -= factor * a[c][k];
    }
  }
  std::vector<double> x(n);
  for (size_t c = n; c-- > 0;) {
    x[c] = a[c][n];
    for (size_t k = c + 1; k < n; ++k) x[c] -= a[c][k] * x[k];
    x[c] /= a[c][c];
  }
  return x;
}

}  // namespace

std::vector<double> FitNonNegative(std::span<const double> features, size_t columns, std::span<const double> values) {
  const size_t rows = values.size();
  std::vector<double> scale(columns, 0), best(columns, 0);
  for (size_t i = 0; i < rows * columns; ++i) scale[i % columns] = std::max(scale[i % columns], std::abs(features[i]));
  const auto feature = [&](size_t r, size_t c) { return scale[c] > 0 ? features[r * columns + c] / scale[c] : 0; };
  const auto error_of = [&](const std::vector<double>& x) {
    double sum = 0;
    for (size_t r = 0; r < rows; ++r) {
      double error = -values[r];
      for (size_t c = 0; c < columns; ++c) error += feature(r, c) * x[c];
      sum += error * error;
    }
    return sum;
  };
  double best_error = error_of(best);
  for (uint32_t chosen = 1; chosen < (1u << columns); ++chosen) {
    std::array<size_t, kCoefficientsMax> column{};
    size_t n = 0;
    for (size_t c = 0; c < columns; ++c)
      if ((chosen >> c & 1) != 0) column[n++] = c;
    Matrix a{};
    for (size_t r = 0; r < rows; ++r) {
      for (size_t i = 0; i < n; ++i) {
        for (size_t j = 0; j < n; ++j) a[i][j] += feature(r, column[i]) * feature(r, column[j]);
        a[i][n] += feature(r, column[i]) * values[r];
      }
    }
    const auto solved = Solve(a, n);
    if (!solved || std::ranges::any_of(*solved, [](double x) { return !(x >= 0); })) continue;
    std::vector<double> x(columns, 0);
    for (size_t i = 0; i < n; ++i) x[column[i]] = (*solved)[i];
    if (const double error = error_of(x); error < best_error) {
      best = x;
      best_error = error;
    }
  }
  for (size_t c = 0; c < columns; ++c) best[c] = scale[c] > 0 ? best[c] / scale[c] : 0;
  return best;
}

}  // namespace headrace
