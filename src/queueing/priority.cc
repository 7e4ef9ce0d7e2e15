#include "queueing/priority.h"

#include <algorithm>

namespace headrace {

Urgency ChooseUrgency(int32_t priority, std::string_view service_tier, Band highest) {
  Band wanted = priority < 0 ? Band::kHigh : priority > 0 ? Band::kBatch : Band::kNormal;
  if (service_tier == "flex") wanted = Band::kBatch;
  if (service_tier == "priority" || service_tier == "fast") wanted = Band::kHigh;
  int32_t position = 0;
  if (wanted == Band::kHigh) position = std::clamp(priority, -kPositions, 0) + kPositions;
  if (wanted == Band::kBatch) position = std::clamp(priority, 0, kPositions) - 1;
  return {std::max(wanted, highest), std::clamp(position, 0, kPositions - 1)};
}

}  // namespace headrace
