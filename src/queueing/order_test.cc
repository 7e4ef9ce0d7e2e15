// Goal: bands are strict, short work goes first, nobody starves, and the order is a strict weak order.
#include "queueing/order.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace headrace {
namespace {

TEST(OrderTest, BandsThenShortestThenArrival) {
  EXPECT_TRUE(GoesBefore({Band::kHigh, 5000, 0, 9}, {Band::kNormal, 1, 0, 1}));
  EXPECT_TRUE(GoesBefore({Band::kNormal, 10, 0, 9}, {Band::kNormal, 5000, 0, 1}));
  EXPECT_TRUE(GoesBefore({Band::kNormal, 10, 0, 1}, {Band::kNormal, 10, 0, 2}));
}

TEST(OrderTest, WaitingOutweighsLength) {
  const TimeNs wait = 12 * kNsPerSecond;  // 6,000 tokens earned
  EXPECT_TRUE(GoesBefore({Band::kNormal, 5000, wait, 1}, {Band::kNormal, 10, 0, 2}));
  EXPECT_TRUE(GoesBefore({Band::kBatch, 100, 2 * kBandAgeing, 1}, {Band::kNormal, 100, 0, 2}));
  EXPECT_FALSE(GoesBefore({Band::kBatch, 1, 100 * kBandAgeing, 1}, {Band::kCritical, 5000, 0, 2}))
      << "batch never overtakes critical";
}

TEST(OrderTest, IsAStrictWeakOrder) {
  Random random(8);
  const auto any = [&] {
    return OrderKey{static_cast<Band>(random.Below(4)), static_cast<int64_t>(random.Below(4)) * 100,
                    static_cast<TimeNs>(random.Below(4)) * 40 * kNsPerSecond, random.Below(3)};
  };
  for (int i = 0; i < 20'000; ++i) {
    const OrderKey a = any(), b = any(), c = any();
    ASSERT_FALSE(GoesBefore(a, a));
    ASSERT_FALSE(GoesBefore(a, b) && GoesBefore(b, a));
    if (GoesBefore(a, b) && GoesBefore(b, c)) {
      ASSERT_TRUE(GoesBefore(a, c));
    }
  }
}

TEST(OrderTest, RetryAfterFollowsTheWorkAhead) {
  EXPECT_EQ(RetryAfterMs(5000, 1000), 5000);
  EXPECT_EQ(RetryAfterMs(1, 1000), 1000);
  EXPECT_EQ(RetryAfterMs(1 << 30, 1), 60'000);
  EXPECT_EQ(RetryAfterMs(100, 0), 1000);
}

}  // namespace
}  // namespace headrace
