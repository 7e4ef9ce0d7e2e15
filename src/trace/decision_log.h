// What an engine was given and what its scheduler decided, step by step: enough to give the same to another engine and
// compare what it decides. Lengths and names of blocks, never what a prompt says. JSON lines: the engine's limits, then
// one a step:
//   {"headrace_decisions":1, "context":…, … as in DecisionSetup}
//   {"now":…, "began":…, "end":…, "in":[[request, prompt, max, band, position, tenant, weight, arrival, start before,
//   finish before,
//    deadline, prompt logits]…], "cancelled":[request…], "expired":[request…], "preempted":[request…],
//    "during":[as in…],
//    "plan":[[request, first position, rows, samples]…], "out":[[request, tokens of its answer, failed, [high,
//    low]…]…]}
// What is empty is left out; a time that never comes is null.
// Times are nanoseconds of the engine's clock. `serve --decision-log FILE` writes it, `simulate --decisions FILE` reads
// it and compares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"
#include "trace/recorded_request.h"

namespace headrace {

// A step's line holds its plan and the names of the blocks of those who end: 4,096 spans, or a context of a million.
constexpr size_t kDecisionLineBytesMax = 1 << 20;
// Of a log that is decided again, all of which is held in memory.
constexpr size_t kDecisionStepsMax = 1 << 20;

// What the engine is made with: with the same, and the same input, it decides the same.
struct DecisionSetup {
  int64_t context = 0;
  int32_t kv_blocks = 0, rows_max = 0, logit_rows_max = 0, sequences_max = 0;
  int32_t waiting_max = 0, shared_tokens_max = 0;
  int32_t drafts_max = 0;  // above 0: what was drafted is not in the log, so it cannot be decided again
  bool prefix_cache = true, room_ahead = true, first_come = false;
  TimeNs itl_target = 0, brown_out_wait = 0;
  bool operator==(const DecisionSetup&) const = default;
};

struct DecidedArrival {
  uint64_t request = 0;  // the engine's number
  int64_t prompt_tokens = 0, max_tokens = 0;
  int32_t band = 0, position = 0;
  uint64_t tenant = 0;
  double weight = 1;
  TimeNs arrival = 0;
  TimeNs start_before = kNever, finish_before = kNever, deadline = kNever;
  bool prompt_logits = false;
  TimeNs keep_until = 0;
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
  bool failed = false;                // the executor did, for this one
  std::vector<RecordedBlock> blocks;  // all of its whole ones, answer included
  bool operator==(const DecidedEnd&) const = default;
};

struct StepDecision {
  TimeNs now = 0, began = 0, end = 0;    // when it was planned, when it began to compute and was computed
  std::vector<DecidedArrival> arrivals;  // let in since the step before it
  std::vector<uint64_t> cancelled;       // dropped before it, by their callers
  std::vector<uint64_t> expired;         // dropped before it, by the clock
  std::vector<uint64_t> preempted;       // in this plan
  std::vector<DecidedSpan> spans;        // planned
  std::vector<DecidedArrival> during;    // let in while it was computed
  std::vector<DecidedEnd> ended;         // before it, cancelled or late, or in it
  bool failed = false;                   // its executor did
  bool operator==(const StepDecision&) const = default;
};

// Takes what an engine decides; called by its thread after each step that had anything to tell.
class DecisionSink {
 public:
  virtual ~DecisionSink() = default;
  virtual void OnSetup(const DecisionSetup& setup) = 0;
  virtual void OnStep(const StepDecision& step) = 0;
};

// Each with its line's end.
void AppendSetup(const DecisionSetup& setup, std::string* out);
void AppendDecision(const StepDecision& decision, std::string* out);
// kInvalidArgument names the field.
Result<DecisionSetup> ParseSetup(std::string_view line);
Result<StepDecision> ParseDecision(std::string_view line);

// Writes a log. What cannot be written is left out, once and for all; the server goes on.
Result<std::unique_ptr<DecisionSink>> CreateDecisionLog(const std::string& path);

struct Decisions {
  DecisionSetup setup;
  std::vector<StepDecision> steps;
};
// kTooLarge above steps_max.
Result<Decisions> LoadDecisions(const ByteSource& source, size_t steps_max = kDecisionStepsMax);

}  // namespace headrace
