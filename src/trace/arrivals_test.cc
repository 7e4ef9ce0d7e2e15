// Goal: arrivals have the rate and the variation that they are asked for, repeat themselves by seed, and refuse absurd
// numbers.
#include "trace/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

// Mean and variation of 100,000 gaps, in seconds.
std::pair<double, double> MeasuredGaps(const ArrivalSpec& spec) {
  Arrivals arrivals = *Arrivals::Make(spec);
  double sum = 0, squares = 0;
  TimeNs last = 0;
  constexpr int kGaps = 100'000;
  for (int i = 0; i < kGaps; ++i) {
    const TimeNs at = arrivals.Next();
    EXPECT_GE(at, last);
    const double gap = static_cast<double>(at - last) / kNsPerSecond;
    last = at;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kGaps;
  return {mean, std::sqrt(std::max(0.0, squares / kGaps - mean * mean)) / mean};
}

TEST(ArrivalsTest, HaveTheRateAndTheVariationAskedFor) {
  const auto [even, none] = MeasuredGaps({.kind = ArrivalKind::kConstant, .per_second = 20});
  EXPECT_NEAR(even, 0.05, 1e-6);
  EXPECT_NEAR(none, 0, 1e-3);
  const auto [poisson, one] = MeasuredGaps({.per_second = 20});
  EXPECT_NEAR(poisson, 0.05, 0.001);
  EXPECT_NEAR(one, 1, 0.02);
  for (double variation : {0.5, 1.0, 3.0}) {
    const auto [mean, measured] = MeasuredGaps({ArrivalKind::kGamma, 4, variation, 5});
    EXPECT_NEAR(mean, 0.25, 0.25 * 0.03 * std::max(1.0, variation));
    EXPECT_NEAR(measured, variation, 0.06 * variation);
  }
}

TEST(ArrivalsTest, RepeatBySeed) {
  const ArrivalSpec spec{ArrivalKind::kGamma, 10, 2, 7};
  Arrivals a = *Arrivals::Make(spec), b = *Arrivals::Make(spec), c = *Arrivals::Make({ArrivalKind::kGamma, 10, 2, 8});
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const TimeNs at = a.Next();
    ASSERT_EQ(at, b.Next());
    differs = differs || at != c.Next();
  }
  EXPECT_TRUE(differs);
}

TEST(ArrivalsTest, RefuseAbsurdNumbers) {
  for (double rate : {0.0, -1.0, 1e9, std::nan("")}) EXPECT_FALSE(Arrivals::Make({.per_second = rate})) << rate;
  for (double variation : {0.0, 1e6, std::nan("")}) EXPECT_FALSE(Arrivals::Make({.variation = variation})) << variation;
}

}  // namespace
}  // namespace headrace
