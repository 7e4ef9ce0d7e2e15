// Goal: the area is the share of pairs in order, ties half.
#include "stats/ranks.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace {
namespace {

TEST(RanksTest, CountsPairs) {
  const std::vector<double> a = {1, 2, 3}, b = {2, 4};
  EXPECT_NEAR(AreaUnderCurve(a, b), 4.5 / 6, 1e-12);
  EXPECT_NEAR(AreaUnderCurve(b, a), 1.5 / 6, 1e-12);
  EXPECT_EQ(AreaUnderCurve(a, a), 0.5);
  EXPECT_EQ(AreaUnderCurve({}, a), 0.5);
  EXPECT_EQ(AreaUnderCurve(a, {}), 0.5);
}

}  // namespace
}  // namespace headrace
