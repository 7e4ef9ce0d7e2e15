// What pool and tiers have in common about pins: blocks that a request asked to keep until a moment. A pin is a wish
// and never a reservation: it decides which block goes first, not whether one goes.
#pragma once

#include <cstdint>

namespace headrace {

// Blocks of the pool, or of a tier below it, that may be pinned at once: the other half is left to those who pin
// nothing.
constexpr int kPinnedPercentMax = 50;

constexpr int32_t PinnedBlocksMax(int32_t blocks) {
  return static_cast<int32_t>(int64_t{blocks} * kPinnedPercentMax / 100);
}

}  // namespace headrace
