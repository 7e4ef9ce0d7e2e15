// A prepared request as the engine takes it: the one place where the network's fields become the compute wing's. Used
// by LocalBackend and by the terminal chat. Pure functions.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "engine/request.h"
#include "gateway/backend.h"
#include "sampling/sampler.h"
#include "text/stop_matcher.h"

namespace headrace {

SamplingParams ToSamplingParams(const SamplingFields& fields, uint64_t seed);

// The stop strings of a request, for all its choices; none when it has none.
Result<std::optional<StopMatcher>> StopsOf(const GenerationRequest& request);

// The cache namespace of a request: of different ones none sees whether another's prompt is cached.
std::string CacheNamespace(const PreparedRequest& request);

// Candidate `candidate` of `request`; candidate i of a prompt draws from seed + i. REQUIRES: candidate <
// request.candidates().
std::unique_ptr<EngineRequest> ToEngineRequest(const PreparedRequest& request, int candidate,
                                               const std::optional<StopMatcher>& stops);

}  // namespace headrace
