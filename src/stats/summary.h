// What a list of measurements says: median and spread, percentiles, fairness. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

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

struct Distribution {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, largest = 0;
  size_t count = 0;
};
// A p99 of fewer says nothing that would hold in a second run.
constexpr size_t kSamplesForP99 = 500;
// All zero for no values; sorts once.
Distribution Describe(std::vector<double> values);

// Fairness of what each got: 1 when all are equal, 1/n when one has everything (Jain, Chiu, Hawe, "A Quantitative
// Measure of Fairness", DEC-TR-301, 1984). 1 for nobody or nothing.
double JainIndex(std::span<const double> shares);

}  // namespace headrace
