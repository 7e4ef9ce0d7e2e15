#include "trace/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headrace {

Result<Arrivals> Arrivals::Make(const ArrivalSpec& spec) {
  if (!(spec.per_second >= 1e-6 && spec.per_second <= 1e6))
    return Fail(ErrorCode::kInvalidArgument, "A rate of arrivals is 0.000001 to 1000000 a second.", "per_second");
  if (!(spec.variation >= 0.01 && spec.variation <= 100))
    return Fail(ErrorCode::kInvalidArgument, "The variation of gaps is 0.01 to 100.", "variation");
  return Arrivals(spec);
}

TimeNs Arrivals::Next() {
  at_ += Gap() / spec_.per_second;
  return static_cast<TimeNs>(std::min(at_, 1e9) * kNsPerSecond);
}

// Mean 1.
double Arrivals::Gap() {
  if (spec_.kind == ArrivalKind::kConstant) return 1;
  if (spec_.kind == ArrivalKind::kPoisson) return -std::log(1 - random_.Uniform());
  const double shape = 1 / (spec_.variation * spec_.variation);
  return Gamma(shape) / shape;
}

// Marsaglia, Tsang, "A Simple Method for Generating Gamma Variables", ACM TOMS 26, 2000. Below a shape of 1 by way of
// shape + 1, there.
double Arrivals::Gamma(double shape) {
  if (shape < 1) return Gamma(shape + 1) * std::pow(1 - random_.Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - random_.Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// Box and Muller, 1958.
double Arrivals::Normal() {
  const double radius = std::sqrt(-2 * std::log(1 - random_.Uniform()));
  return radius * std::cos(2 * std::numbers::pi * random_.Uniform());
}

}  // namespace headrace
