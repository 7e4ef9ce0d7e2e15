// What a caller asked for about its place in line, as a band and a position in it. Pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "queueing/band.h"

namespace headrace {

// Positions in a band, 0 first. The tenant's own order among its own requests: it takes nothing from other tenants.
constexpr int32_t kPositions = 16;

struct Urgency {
  Band band = Band::kNormal;
  int32_t position = 0;
  bool operator==(const Urgency&) const = default;
};

// priority as vLLM defines it: lower runs earlier. Below 0: the high band, -16 and less first; above 0: the batch band,
// 16 and more last. service_tier as OpenAI defines it: "priority" and "fast" are the high band, "flex" the batch band,
// others leave the choice to priority. Where the two differ, the tier decides; without either it is `standard`, the
// key's usual band and the only way to the critical one. Never above `highest`, the key's own.
Urgency ChooseUrgency(int32_t priority, std::string_view service_tier, Band standard, Band highest);

// The tier of OpenAI's that stands for the band that was used.
std::string_view ServiceTierOf(Band band);

}  // namespace headrace
