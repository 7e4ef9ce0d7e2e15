#include "queueing/service_meter.h"

#include <algorithm>
#include <cmath>

namespace headrace {

void ServiceMeter::Fading::Add(double more, double more_seconds) {
  const double keep = std::exp2(-more_seconds * kNsPerSecond / static_cast<double>(kMeterHalfLife));
  amount = amount * keep + more;
  seconds = seconds * keep + more_seconds;
}

void ServiceMeter::OnStep(const Step& step) {
  if (step.duration <= 0) return;
  const double seconds = static_cast<double>(step.duration) / kNsPerSecond;
  const auto rows = static_cast<double>(step.prompt_rows);
  step_.Add(1, seconds);
  if (step.rows_short) rows_.Add(rows, seconds);
  if (!step.rows_short) best_rows_ = std::max(best_rows_, rows / seconds);
  if (step.places_short) starts_.Add(step.starts, seconds);
}

ServiceRates ServiceMeter::Rates(int32_t free_places) const {
  const double steps = step_.Rate();
  return {.tokens_per_second = rows_.seconds > 0 ? rows_.Rate() : best_rows_,
          .starts_per_second = starts_.Rate(),
          .free_places = free_places,
          .step = steps > 0 ? static_cast<TimeNs>(kNsPerSecond / steps) : 0};
}

}  // namespace headrace
