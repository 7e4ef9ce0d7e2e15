// Goal: our elementary functions are accurate (libm is the oracle) over the ranges that tables and sampling use.
#include "base/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace headrace {
namespace {

TEST(ExactMathTest, AgreesWithLibm) {
  Random random(11);
  for (int i = 0; i < 200'000; ++i) {
    const double x = (random.Uniform() - 0.5) * 1000;
    if (x < 700) {
      ASSERT_NEAR(ExactExp(x) / std::exp(x), 1.0, 4e-15) << x;
    }
    const double p = std::exp((random.Uniform() - 0.5) * 600);
    ASSERT_NEAR(ExactLog(p), std::log(p), 4e-15 * std::max(1.0, std::fabs(std::log(p)))) << p;
    const double angle = random.Uniform() * 131072 * (i % 3 == 0 ? 1e-6 : 1.0);
    double s, c;
    ExactSinCos(angle, &s, &c);
    ASSERT_NEAR(s, std::sin(angle), 2e-15) << angle;
    ASSERT_NEAR(c, std::cos(angle), 2e-15) << angle;
  }
  EXPECT_NEAR(ExactPow(10000.0, -0.25), 0.1, 1e-15);
  EXPECT_NEAR(ExactPow(100000.0, 0.4), 100.0, 3e-13);
  EXPECT_EQ(ExactExp(-1000), 0.0);
  EXPECT_TRUE(std::isinf(ExactExp(1000)));
}

}  // namespace
}  // namespace headrace
