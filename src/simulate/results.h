// What a simulation or a replay measured, as one table: pure functions over what happened to each request.
//   TTFT     first token - arrival
//   TPOT     (end - first token) / (output tokens - 1), of answers with two tokens or more
//   ITL      each gap between two tokens of an answer, all answers together
//   E2E      end - arrival
//   goodput  finished requests that met both limits, a second; attainment: their share of all that arrived
//   fairness Jain's index over the tenants' computed tokens by weight
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "stats/summary.h"

namespace headrace {

enum class Outcome : uint8_t { kFinished, kRefused, kExpired, kCancelled, kFailed };

struct RequestResult {
  Outcome outcome = Outcome::kFinished;
  uint64_t tenant = 0;
  double weight = 1;
  TimeNs arrival = 0;
  TimeNs first_token = kNever;
  TimeNs end = kNever;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t output_tokens = 0;
};

struct LatencyTarget {
  TimeNs ttft = 2 * kNsPerSecond;
  TimeNs tpot = 100 * kNsPerMs;
};

struct ResultTable {
  size_t requests = 0, finished = 0, refused = 0, expired = 0, cancelled = 0, failed = 0;
  Distribution ttft_ms, tpot_ms, itl_ms, e2e_ms;
  double seconds = 0;  // from the first arrival to the last end
  double goodput = 0, attainment = 0;
  double output_tokens_per_second = 0;
  double hit_rate = 0;  // cached prompt tokens over all, of requests that got a first token
  double fairness = 1;
};

// `gaps_ms`: see ITL; may be empty.
ResultTable Tabulate(std::span<const RequestResult> results, std::vector<double> gaps_ms, const LatencyTarget& target);

// For a person, with the formulas' names; percentiles that too few samples support are a dash.
std::string FormatTable(const ResultTable& table, const LatencyTarget& target);

}  // namespace headrace
