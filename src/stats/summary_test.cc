// Goal: medians, quantiles and spreads of small lists, whatever their order.
#include "stats/summary.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

TEST(SummaryTest, MedianAndSpread) {
  const Summary odd = Summarise(std::vector<double>{5, 1, 9});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.largest, 9);
  EXPECT_EQ(odd.count, 3u);
  EXPECT_EQ(Summarise(std::vector<double>{4, 2}).median, 3);
  EXPECT_EQ(Summarise({}).count, 0u);
}

TEST(SummaryTest, QuantilesInterpolate) {
  const std::vector<double> values = {40, 10, 30, 20};
  EXPECT_EQ(Quantile(values, 0), 10);
  EXPECT_EQ(Quantile(values, 1), 40);
  EXPECT_EQ(Quantile(values, 0.5), 25);
  EXPECT_EQ(Quantile(std::vector<double>{7}, 0.99), 7);
}

}  // namespace
}  // namespace headrace
