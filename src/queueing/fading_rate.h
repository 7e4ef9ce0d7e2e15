// A rate of which older measurements count less: amounts over what they were measured against (seconds, rows), both
// fading. A value; one thread.
#pragma once

#include <cmath>

namespace headrace {

class FadingRate {
 public:
  // After so much more of the measure what was added before weighs half.
  explicit FadingRate(double half_life) : half_life_(half_life) {}

  void Add(double amount, double measure) {
    const double keep = std::exp2(-measure / half_life_);
    amount_ = amount_ * keep + amount;
    measure_ = measure_ * keep + measure;
  }
  double measure() const { return measure_; }
  // 0 before the first measurement.
  double rate() const { return measure_ > 0 ? amount_ / measure_ : 0; }

 private:
  const double half_life_;
  double amount_ = 0, measure_ = 0;
};

}  // namespace headrace
