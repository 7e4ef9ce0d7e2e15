// Gathers what one step was given and decided, for a DecisionSink; without one nothing happens. Called under the
// engine's mutex.
#pragma once

#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "kv_cache/block_chain.h"
#include "scheduler/scheduler.h"
#include "trace/decision_log.h"

namespace headrace {

class DecisionRecorder {
 public:
  // null: nobody listens.
  explicit DecisionRecorder(DecisionSink* sink) : sink_(sink) {}

  void Setup(const SchedulerLimits& limits, int32_t kv_blocks, int32_t waiting_max, TimeNs brown_out_wait,
             int32_t drafts_max);
  void Arrived(uint64_t request, const SequenceSpec& spec, TimeNs finish_before);
  void Cancelled(uint64_t request) {
    if (sink_ != nullptr) step_.cancelled.push_back(request);
  }
  void Expired(uint64_t request) {
    if (sink_ != nullptr) step_.expired.push_back(request);
  }
  // It is gone, whatever the reason. `chain`: null without a prefix cache.
  void Ended(uint64_t request, const BlockChain* chain, int64_t output_tokens, bool failed);
  // `request_of(slot)`
  template <typename RequestOf>
  void Planned(TimeNs now, const BatchPlan& plan, const RequestOf& request_of) {
    if (sink_ == nullptr) return;
    step_.now = now;
    for (const PlannedSpan& span : plan.spans)
      step_.spans.push_back({request_of(span.slot), span.first_position, span.rows, span.samples});
    for (const int32_t slot : plan.preempted) step_.preempted.push_back(request_of(slot));
    computing_ = true;
  }
  // The step is over: hands it on if it was anything.
  void Computed(TimeNs began, TimeNs end, bool failed);

 private:
  DecisionSink* const sink_;
  StepDecision step_;
  bool computing_ = false;  // between Planned and Computed
};

}  // namespace headrace
