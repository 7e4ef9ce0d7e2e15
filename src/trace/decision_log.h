// What an engine was given and what its scheduler decided, step by step: enough to give the same to another engine and
// compare what it decides. Lengths and names of blocks, never what a prompt says. JSON lines, one a step:
//   {"now":…, "end":…, "in":[[request, prompt, max, band, position, tenant, weight, arrival, start before, finish
//   before,
//    deadline, prompt logits]…], "cancelled":[request…], "expired":[request…], "preempted":[request…],
//    "plan":[[request, first position, rows, samples]…], "out":[[request, tokens of its answer, [high, low]…]…]}
// What is empty is left out; a time that never comes is null.
// Times are nanoseconds of the engine's clock. `serve --decision-log FILE` writes it, `simulate --decisions FILE` reads
// it and compares.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "trace/recorded_request.h"

namespace headrace {

// A step's line holds its plan and the names of the blocks of those who end: 4,096 spans, or a context of a million.
constexpr size_t kDecisionLineBytesMax = 1 << 20;
// Of a log that is replayed whole.
constexpr size_t kDecisionLogBytesMax = 1 << 30;

struct DecidedArrival {
  uint64_t request = 0;  // the engine's number
  int64_t prompt_tokens = 0, max_tokens = 0;
  int32_t band = 0, position = 0;
  uint64_t tenant = 0;
  double weight = 1;
  TimeNs arrival = 0;
  TimeNs start_before = kNever, finish_before = kNever, deadline = kNever;
  bool prompt_logits = false;
  bool operator==(const DecidedArrival&) const = default;
};

struct DecidedSpan {
  uint64_t request = 0;
  int64_t first_position = 0;
  int32_t rows = 0;
  bool samples = false;
  bool operator==(const DecidedSpan&) const = default;
};

struct DecidedEnd {
  uint64_t request = 0;
  int64_t output_tokens = 0;
  std::vector<RecordedBlock> blocks;  // all of its whole ones, answer included
  bool operator==(const DecidedEnd&) const = default;
};

struct StepDecision {
  TimeNs now = 0, end = 0;               // when it was planned, when it was computed
  std::vector<DecidedArrival> arrivals;  // taken in before it
  std::vector<uint64_t> cancelled;       // dropped before it, by their callers
  std::vector<DecidedSpan> spans;        // planned
  std::vector<uint64_t> preempted;       // in this plan
  std::vector<uint64_t> expired;         // dropped before it, by the clock
  std::vector<DecidedEnd> ended;         // in this step, or dropped before it
  bool failed = false;                   // its executor did
  bool operator==(const StepDecision&) const = default;
};

// With its line's end.
void AppendDecision(const StepDecision& decision, std::string* out);
// kInvalidArgument names the field.
Result<StepDecision> ParseDecision(std::string_view line);

}  // namespace headrace
