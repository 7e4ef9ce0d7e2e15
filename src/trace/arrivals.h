// Synthetic moments of arrival. The same seed gives the same moments. One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/random.h"
#include "base/result.h"

namespace headrace {

enum class ArrivalKind : uint8_t {
  kConstant,  // evenly spaced
  kPoisson,   // independent of each other: exponential gaps
  kGamma,     // gamma gaps: burstier than Poisson above a variation of 1, more even below
};

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kPoisson;
  double per_second = 1;
  double variation = 1;  // kGamma: of the gaps, standard deviation over mean
  uint64_t seed = 1;
};

class Arrivals {
 public:
  // kInvalidArgument: per_second within [1e-6, 1e6], variation within [0.01, 100].
  static Result<Arrivals> Make(const ArrivalSpec& spec);

  // Since the begin, never less than the one before; the first after one gap.
  TimeNs Next();

 private:
  explicit Arrivals(const ArrivalSpec& spec) : spec_(spec), random_(spec.seed) {}
  double Gap();
  double Gamma(double shape);
  double Normal();

  ArrivalSpec spec_;
  Random random_;
  double at_ = 0;  // seconds
};

}  // namespace headrace
