#include "queueing/priority.h"

#include <algorithm>

namespace headrace {

Urgency ChooseUrgency(int32_t priority, std::string_view service_tier, Band standard, Band highest) {
  Band wanted = priority < 0 ? std::min(Band::kHigh, standard) : priority > 0 ? Band::kBatch : standard;
  if (service_tier == "flex") wanted = Band::kBatch;
  if (service_tier == "priority" || service_tier == "fast") wanted = std::min(Band::kHigh, standard);
  int32_t position = 0;
  if (wanted <= Band::kHigh) position = std::clamp(priority, -kPositions, 0) + kPositions;
  if (wanted == Band::kBatch) position = std::clamp(priority, 0, kPositions) - 1;
  return {std::max(wanted, highest), std::clamp(position, 0, kPositions - 1)};
}

std::string_view ServiceTierOf(Band band) {
  return band <= Band::kHigh ? "priority" : band == Band::kBatch ? "flex" : "default";
}

}  // namespace headrace
