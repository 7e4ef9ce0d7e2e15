#include "engine/decision_recorder.h"

namespace headrace {

void DecisionRecorder::Setup(const SchedulerLimits& limits, int32_t kv_blocks, int32_t waiting_max,
                             TimeNs brown_out_wait, int32_t drafts_max) {
  if (sink_ == nullptr) return;
  sink_->OnSetup({.context = limits.context,
                  .kv_blocks = kv_blocks,
                  .rows_max = limits.batch_tokens_max,
                  .logit_rows_max = limits.logit_rows_max,
                  .sequences_max = limits.sequences_max,
                  .waiting_max = waiting_max,
                  .shared_tokens_max = limits.shared_tokens_max,
                  .drafts_max = drafts_max,
                  .prefix_cache = limits.prefix_cache,
                  .room_ahead = limits.room_ahead,
                  .first_come = limits.order == QueueOrder::kFirstCome,
                  .itl_target = limits.itl_target,
                  .brown_out_wait = brown_out_wait});
}

void DecisionRecorder::Arrived(uint64_t request, const SequenceSpec& spec, TimeNs finish_before) {
  if (sink_ == nullptr) return;
  (computing_ ? step_.during : step_.arrivals)
      .push_back({.request = request,
                  .prompt_tokens = spec.prompt_tokens,
                  .max_tokens = spec.max_tokens,
                  .band = static_cast<int32_t>(spec.place.band),
                  .position = spec.place.position,
                  .tenant = spec.place.tenant,
                  .weight = spec.place.weight,
                  .arrival = spec.place.arrival,
                  .start_before = spec.place.start_before,
                  .finish_before = finish_before,
                  .deadline = spec.place.deadline,
                  .prompt_logits = spec.prompt_logits,
                  .keep_until = spec.keep_until});
}

void DecisionRecorder::Ended(uint64_t request, const BlockChain* chain, int64_t output_tokens, bool failed) {
  if (sink_ == nullptr) return;
  DecidedEnd& end = step_.ended.emplace_back();
  end.request = request;
  end.output_tokens = output_tokens;
  end.failed = failed;
  for (int64_t block = 0; chain != nullptr && block < chain->blocks(); ++block)
    end.blocks.push_back({chain->name(block).high, chain->name(block).low});
}

void DecisionRecorder::Computed(TimeNs began, TimeNs end, bool failed) {
  if (sink_ == nullptr) return;
  step_.began = began;
  step_.end = end;
  step_.failed = failed;
  computing_ = false;
  if (!step_.spans.empty() || !step_.preempted.empty() || !step_.ended.empty() || !step_.arrivals.empty() ||
      !step_.during.empty())
    sink_->OnStep(step_);
  step_ = {};
}

}  // namespace headrace
