// Floats as integers in their own order, to halve an interval of them or to take a step.
#pragma once

#include <bit>
#include <cstdint>

namespace headrace {

// Equal for -0 and +0. REQUIRES: not a NaN.
inline uint32_t OrderOf(float v) {
  const auto bits = std::bit_cast<uint32_t>(v + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
inline float FloatAt(uint32_t order) {
  return std::bit_cast<float>((order & 0x80000000u) != 0 ? order & 0x7FFFFFFFu : ~order);
}
// The next larger float; infinity for the largest.
inline float NextAbove(float v) { return FloatAt(OrderOf(v) + 1); }

}  // namespace headrace
