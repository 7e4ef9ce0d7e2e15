// Measures what the machine can do while work waits, for predictions: rates over the last seconds in which it was the
// machine that limited, not the callers. Time is an argument. One thread (that of the steps).
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "queueing/admission.h"
#include "queueing/fading_rate.h"

namespace headrace {

// Of the time that counts: what was measured this long ago weighs half.
constexpr TimeNs kMeterHalfLife = 10 * kNsPerSecond;

class ServiceMeter {
 public:
  struct Step {
    TimeNs duration = 0;
    int64_t prompt_rows = 0;    // computed by it
    int32_t starts = 0;         // requests that began in it
    bool rows_short = false;    // prompt tokens that could have been computed were left for the next step
    bool places_short = false;  // requests wait because as many run as may
  };
  void OnStep(const Step& step);

  // With the places that are free now. What never was short has no rate, and limits no prediction.
  ServiceRates Rates(int32_t free_places) const;

 private:
  static constexpr double kHalfLifeSeconds = static_cast<double>(kMeterHalfLife) / kNsPerSecond;
  FadingRate rows_{kHalfLifeSeconds}, starts_{kHalfLifeSeconds}, step_{kHalfLifeSeconds};
  double best_rows_ = 0;  // a second, of steps that had rows to spare: a lower bound of the rate until one is short
};

}  // namespace headrace
