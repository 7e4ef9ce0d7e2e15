#include "queueing/service_meter.h"

#include <algorithm>

namespace headrace {

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
  const double steps = step_.rate();
  return {.tokens_per_second = rows_.measure() > 0 ? rows_.rate() : best_rows_,
          .starts_per_second = starts_.rate(),
          .free_places = free_places,
          .step = steps > 0 ? static_cast<TimeNs>(kNsPerSecond / steps) : 0};
}

}  // namespace headrace
