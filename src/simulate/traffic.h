// Requests for a simulation: recorded ones, faster, slower or spread, or drawn ones. Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "trace/arrivals.h"
#include "trace/recorded_request.h"

namespace headrace {

// Arrivals `speed` times as dense. REQUIRES: speed > 0.
void ScaleArrivals(double speed, std::vector<RecordedRequest>* requests);

// Requests with one stamp come at random moments until the next stamp: recorders stamp in groups (Mooncake: 3 s), and
// who really came together is not known. Keeps the order of arrival.
void SpreadArrivals(uint64_t seed, std::vector<RecordedRequest>* requests);

struct SyntheticTraffic {
  ArrivalSpec arrivals;
  size_t requests = 1000;
  int64_t prompt_tokens = 1000;  // mean; lengths are exponential
  int64_t output_tokens = 200;   // likewise
  int32_t tenants = 1;           // each request is of any of them
  double shared_share = 0.5;     // of requests, whose prompt begins with one of kSyntheticPrefixes texts
  uint64_t seed = 1;
};
constexpr uint64_t kSyntheticPrefixes = 16;
Result<std::vector<RecordedRequest>> DrawTraffic(const SyntheticTraffic& traffic);

// Token ids below vocab_size that begin alike where the recorded blocks do; what has no block's name is the request's
// own. REQUIRES: vocab_size > 0.
void PromptTokens(const RecordedRequest& request, int32_t vocab_size, std::vector<int32_t>* out);

}  // namespace headrace
