// The scheduler's part of speculation: rows for drafts, after every decode has its own and before prompts take the
// rest.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace headrace {

void Scheduler::OfferDrafts(int32_t slot, const DraftOffer& offer) {
  CHECK_LE(offer.count, kDraftsMax);
  Sequence& sequence = at(slot);
  sequence.offer = offer;
  sequence.offered_for = plans_ + 1;
}

void Scheduler::PlanDrafts(BatchPlan* plan) {
  if (drafts_max_ == 0 || plan->spans.empty()) return;
  drafts_.Clear();
  static constexpr DraftOffer kNone;
  for (size_t i = 0; i < plan->spans.size(); ++i) {
    const Sequence& s = at(plan->spans[i].slot);
    drafts_.Add({static_cast<int32_t>(i), s.length, s.offered_for == plans_ ? &s.offer : &kNone});
  }
  // Prompts keep half of what decodes leave of a step.
  drafts_.Choose(drafts_max_,
                 std::min((limits_.batch_tokens_max - plan->rows) / 2, limits_.logit_rows_max - logit_rows_));
  for (const DraftPlanner::Decode& decode : drafts_.decodes())
    if (decode.drafts > 0) AddDrafts(decode.drafts, plan, &plan->spans[static_cast<size_t>(decode.span)]);
}

// A draft takes no block from anybody: it gets what is free.
void Scheduler::AddDrafts(int32_t drafts, BatchPlan* plan, PlannedSpan* span) {
  Sequence& sequence = at(span->slot);
  const int64_t most = sequence.spec.prompt_tokens + sequence.spec.max_tokens - 1 - sequence.length;
  drafts = static_cast<int32_t>(std::min<int64_t>(drafts, most));
  while (drafts > 0 && !sequence.table.GrowTo(sequence.length + drafts)) --drafts;
  if (drafts <= 0) return;
  span->drafts = drafts;
  span->rows += drafts;
  plan->rows += drafts;
  logit_rows_ += drafts;
}

// Of a plan's sequences that decode; a prompt's last token counts as one, and is like one.
DecodeLoad Scheduler::DecodesOf(const BatchPlan& plan) const {
  DecodeLoad load;
  for (const PlannedSpan& span : plan.spans) {
    if (span.rows != 1 + span.drafts) continue;
    load.rows += span.rows;
    load.drafts = load.drafts || span.drafts > 0;
    load.attended += int64_t{span.rows} * at(span.slot).length;
  }
  return load;
}

void Scheduler::Measured(const BatchPlan& plan, TimeNs time) {
  const DecodeLoad load = DecodesOf(plan);
  if (load.rows == plan.rows) return drafts_.cost().Observe(load, time);
  const TimeNs decodes = load.rows > 0 ? std::max<TimeNs>(1, drafts_.cost().TimeOf(load)) : 0;
  prompt_budget_.Observe(decodes, plan.rows - load.rows, time);
}

}  // namespace headrace
