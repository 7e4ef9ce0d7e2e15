#include "base/exact_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace headrace {
namespace {

constexpr double kLn2High = 0x1.62e42fefa3800p-1;  // 33 bits of ln 2, so that k * kLn2High is exact
constexpr double kLn2Low = 0x1.ef35793c76730p-45;
// pi/2 in three parts of 33 bits; q * part is exact for |q| < 2^20.
constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;

double PowerOfTwo(int64_t k) { return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52); }

// Round to nearest even for |x| < 2^51.
double Nearest(double x) {
  constexpr double kMagic = 0x1.8p52;
  return (x + kMagic) - kMagic;
}

// sin and cos on [-pi/4, pi/4] by their Taylor series; 1e-17 after the terms below.
double SinSmall(double x) {
  const double z = x * x;
  double sum = -1.0 / 1307674368000.0;  // 15!
  sum = sum * z + 1.0 / 6227020800.0;   // 13!
  sum = sum * z - 1.0 / 39916800.0;
  sum = sum * z + 1.0 / 362880.0;
  sum = sum * z - 1.0 / 5040.0;
  sum = sum * z + 1.0 / 120.0;
  sum = sum * z - 1.0 / 6.0;
  return x + x * (z * sum);
}
double CosSmall(double x) {
  const double z = x * x;
  double sum = 1.0 / 20922789888000.0;  // 16!
  sum = sum * z - 1.0 / 87178291200.0;  // 14!
  sum = sum * z + 1.0 / 479001600.0;
  sum = sum * z - 1.0 / 3628800.0;
  sum = sum * z + 1.0 / 40320.0;
  sum = sum * z - 1.0 / 720.0;
  sum = sum * z + 1.0 / 24.0;
  sum = sum * z - 0.5;
  return 1.0 + z * sum;
}

}  // namespace

double ExactExp(double x) {
  if (x < -745.0) return 0.0;
  if (x > 709.0) return std::numeric_limits<double>::infinity();
  const double k = Nearest(x * 1.4426950408889634);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1.0;
  for (int i = 14; i >= 1; --i) sum = 1.0 + sum * r / i;
  const int64_t half = static_cast<int64_t>(k) / 2;
  return sum * PowerOfTwo(half) * PowerOfTwo(static_cast<int64_t>(k) - half);
}

double ExactLog(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t k = 0;
  if ((bits >> 52) == 0) {  // subnormal
    bits = std::bit_cast<uint64_t>(x * 0x1p54);
    k = -54;
  }
  k += static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xFFFFFFFFFFFFFull) | (1023ull << 52));
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++k;
  }
  // log m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.172
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 0.0;
  for (int i = 23; i >= 3; i -= 2) sum = sum * z + 1.0 / i;
  const double log_m = 2.0 * s + 2.0 * s * (z * sum);
  const double kd = static_cast<double>(k);
  return kd * kLn2High + (log_m + kd * kLn2Low);
}

double ExactPow(double base, double exponent) { return ExactExp(exponent * ExactLog(base)); }

void ExactSinCos(double x, double* sine, double* cosine) {
  const double q = Nearest(x * 0.63661977236758134);
  const double r = ((x - q * kHalfPi1) - q * kHalfPi2) - q * kHalfPi3;
  const double s = SinSmall(r), c = CosSmall(r);
  switch (static_cast<int64_t>(q) & 3) {
    case 0:
      *sine = s, *cosine = c;
      break;
    case 1:
      *sine = c, *cosine = -s;
      break;
    case 2:
      *sine = -s, *cosine = -c;
      break;
    default:
      *sine = -c, *cosine = s;
      break;
  }
}

}  // namespace headrace
