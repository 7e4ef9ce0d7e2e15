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

TEST(SummaryTest, DescribesInOneGo) {
  std::vector<double> values;
  for (int i = 100; i >= 0; --i) values.push_back(i);
  const Distribution d = Describe(values);
  EXPECT_EQ(d.mean, 50);
  EXPECT_EQ(d.p50, 50);
  EXPECT_EQ(d.p90, 90);
  EXPECT_EQ(d.p99, 99);
  EXPECT_EQ(d.largest, 100);
  EXPECT_EQ(d.count, 101u);
  EXPECT_EQ(Describe({}).count, 0u);
}

TEST(SummaryTest, JainIndexOfEqualAndUnequalShares) {
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{3, 3, 3}), 1);
  EXPECT_DOUBLE_EQ(JainIndex(std::vector<double>{5, 0, 0, 0}), 0.25);
  EXPECT_NEAR(JainIndex(std::vector<double>{10, 1}), 121.0 / 202, 1e-12);
  EXPECT_EQ(JainIndex({}), 1);
  EXPECT_EQ(JainIndex(std::vector<double>{0, 0}), 1);
}

}  // namespace
}  // namespace headrace
