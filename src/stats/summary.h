// Median and spread of repeated measurements. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>

namespace headrace {

struct Summary {
  double median = 0;
  double least = 0;
  double largest = 0;
  size_t count = 0;
};

// All zero for no values.
Summary Summarise(std::span<const double> values);
// The value below which a share `q` of the others lie, by linear interpolation between the two nearest (Hyndman and
// Fan's type 7). REQUIRES: values is not empty, 0 <= q <= 1.
double Quantile(std::span<const double> values, double q);

}  // namespace headrace
