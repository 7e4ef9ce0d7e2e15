// Goal: the fit finds the line that made the values, and never a coefficient below zero.
#include "stats/least_squares.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(LeastSquaresTest, FindsWhatMadeTheValues) {
  std::vector<double> features, values;
  for (int i = 0; i < 40; ++i) {
    const double a = i % 7, b = 1e6 * (i % 5);
    features.insert(features.end(), {1, a, b});
    values.push_back(3 + 0.5 * a + 2e-6 * b);
  }
  const std::vector<double> x = FitNonNegative(features, 3, values);
  EXPECT_NEAR(x[0], 3, 1e-9);
  EXPECT_NEAR(x[1], 0.5, 1e-9);
  EXPECT_NEAR(x[2], 2e-6, 1e-15);
}

TEST(LeastSquaresTest, IsNeverBelowZero) {
  // Falls: the best line without a negative slope is flat.
  const std::vector<double> features = {1, 0, 1, 1, 1, 2}, values = {3, 2, 1};
  const std::vector<double> x = FitNonNegative(features, 2, values);
  EXPECT_NEAR(x[0], 2, 1e-12);
  EXPECT_EQ(x[1], 0);
}

TEST(LeastSquaresTest, ColumnsThatAreAlikeOrEmpty) {
  const std::vector<double> features = {1, 1, 0, 2, 2, 0, 3, 3, 0}, values = {2, 4, 6};
  const std::vector<double> x = FitNonNegative(features, 3, values);
  EXPECT_NEAR(x[0] + x[1], 2, 1e-9);
  EXPECT_EQ(x[2], 0);
  EXPECT_EQ(FitNonNegative({}, 2, {}), std::vector<double>({0, 0}));
}

}  // namespace
}  // namespace headrace
