// Goal: rates are what the machine can do, not what callers asked of it, and follow a change within seconds.
#include "queueing/service_meter.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(ServiceMeterTest, NothingMeasuredLimitsNothing) {
  const ServiceRates rates = ServiceMeter().Rates(3);
  EXPECT_EQ(rates.tokens_per_second, 0);
  EXPECT_EQ(rates.starts_per_second, 0);
  EXPECT_EQ(rates.free_places, 3);
  EXPECT_EQ(PredictTtft({.tokens = 1000}, 1000, rates), 0);
}

TEST(ServiceMeterTest, IdleStepsDoNotLowerTheRate) {
  ServiceMeter meter;
  meter.OnStep({.duration = 10 * kNsPerMs, .prompt_rows = 40});
  EXPECT_NEAR(meter.Rates(1).tokens_per_second, 4000, 1e-6) << "a lower bound until rows are short";
  for (int i = 0; i < 100; ++i) {
    meter.OnStep({.duration = 100 * kNsPerMs, .prompt_rows = 2000, .rows_short = true});
    meter.OnStep({.duration = 6 * kNsPerMs, .prompt_rows = 1});
    meter.OnStep({.duration = 6 * kNsPerMs});
  }
  EXPECT_NEAR(meter.Rates(1).tokens_per_second, 20'000, 1);
  EXPECT_NEAR(static_cast<double>(meter.Rates(1).step), 112e6 / 3, 2e6);
  meter.OnStep({.duration = 0, .prompt_rows = 5, .rows_short = true});
  meter.OnStep({.duration = -5, .rows_short = true});
  EXPECT_NEAR(meter.Rates(1).tokens_per_second, 20'000, 1) << "a clock that stood still or jumped back";
}

TEST(ServiceMeterTest, StartsCountWhilePlacesAreShort) {
  ServiceMeter meter;
  for (int i = 0; i < 100; ++i) {
    meter.OnStep({.duration = 50 * kNsPerMs, .starts = 8});
    meter.OnStep({.duration = 50 * kNsPerMs, .starts = i % 2, .places_short = true});
  }
  EXPECT_NEAR(meter.Rates(0).starts_per_second, 10, 0.5);
}

TEST(ServiceMeterTest, FollowsAChangeWithinSeconds) {
  ServiceMeter meter;
  for (int i = 0; i < 1000; ++i) meter.OnStep({.duration = 100 * kNsPerMs, .prompt_rows = 2000, .rows_short = true});
  for (int i = 0; i < 200; ++i) meter.OnStep({.duration = 100 * kNsPerMs, .prompt_rows = 500, .rows_short = true});
  EXPECT_NEAR(meter.Rates(1).tokens_per_second, 5000 + 15'000 / 4.0, 100) << "two half-lives";
}

}  // namespace
}  // namespace headrace
