// Bands of urgency: strict, so that nothing of a band runs while something more urgent could.
#pragma once

#include <cstdint>

namespace headrace {

// Most urgent first. A caller may use its key's highest band and those below.
enum class Band : uint8_t { kCritical = 0, kHigh = 1, kNormal = 2, kBatch = 3 };
constexpr int kBands = 4;

}  // namespace headrace
