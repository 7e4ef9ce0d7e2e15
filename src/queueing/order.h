// The order in which waiting and prefilling requests get the step's budget: strict priority bands; within a band the
// least remaining work first, less what waiting has earned (ageing), so that a short prompt is not stuck behind a long
// one (O-28) and a long one is not starved by an endless flow of short ones. Pure functions, used by both wings.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace headrace {

// Bands, most urgent first. A caller may use its key's highest band and those below.
enum class Band : uint8_t { kCritical = 0, kHigh = 1, kNormal = 2, kBatch = 3 };
constexpr int kBands = 4;

struct OrderKey {
  Band band = Band::kNormal;
  int64_t remaining_tokens = 0;  // prompt tokens still to compute
  TimeNs waited = 0;             // since arrival
  uint64_t sequence = 0;         // arrival number, breaks ties
};

// Tokens of remaining work that one second of waiting outweighs: about what a small machine prefills in half a second.
constexpr int64_t kAgeingTokensPerSecond = 500;
// A batch request that waited this long moves up one band, again after the same time, up to kHigh.
constexpr TimeNs kBandAgeing = 60 * kNsPerSecond;

// True when a goes before b.
bool GoesBefore(const OrderKey& a, const OrderKey& b);

// How long until a refused request would be let in: the work ahead of it over the measured rate, at least one second,
// at most a minute. rate <= 0: not measured yet.
int64_t RetryAfterMs(int64_t tokens_ahead, double tokens_per_second);

}  // namespace headrace
