#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/planted.h"

namespace headrace {
namespace {

// What is promised beyond the pool while little is computed twice, as a share of it; of all that is computed what may
// be again before nothing is promised; and for how long that counts, in pools full of tokens.
constexpr double kPromisedBeyond = 0.3, kRecomputedMost = 0.012, kPoolsRemembered = 16;
// Steps stay brief for so many plans behind a critical arrival: a few seconds.
constexpr uint64_t kBriefPlans = 200;

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, int32_t kv_blocks)
    : limits_(limits),
      pool_(kv_blocks, limits.prefix_cache),
      queue_(limits.sequences_max + limits.waiting_max, kAgeingTokensPerSecond, kTurnTokens, limits.order),
      drafts_(limits.sequences_max),
      recomputed_(kPoolsRemembered * kv_blocks * kBlockTokens),
      prompt_budget_(limits.itl_target == kNever ? 0 : limits.itl_target) {
  CHECK_GT(limits.context, 0);
  CHECK_GT(limits.batch_tokens_max, 0);
  CHECK_LE(limits.shared_tokens_max, limits.batch_tokens_max);
  CHECK_GE(limits.logit_rows_max, limits.sequences_max);
  CHECK_GT(limits.sequences_max, 0);
  CHECK_GE(limits.waiting_max, 0);
  const int32_t slots = limits.sequences_max + limits.waiting_max;
  const int64_t blocks_max = std::min<int64_t>(BlocksFor(limits.context), kv_blocks);
  for (int32_t slot = slots - 1; slot >= 0; --slot) {
    sequences_.push_back(std::make_unique<Sequence>(pool_, blocks_max));
    free_slots_.push_back(slot);
  }
  running_.reserve(static_cast<size_t>(limits.sequences_max));
  snapshot_.reserve(static_cast<size_t>(limits.sequences_max));
  room_ahead_.Reserve(static_cast<size_t>(limits.sequences_max) + 1);
}

void Scheduler::ReservePlan(BatchPlan* plan) const {
  plan->spans.reserve(static_cast<size_t>(limits_.sequences_max));
  plan->preempted.reserve(static_cast<size_t>(limits_.sequences_max));
  plan->restores.reserve(static_cast<size_t>(limits_.sequences_max));
}

int64_t Scheduler::ClampedMaxTokens(int64_t prompt_tokens, int64_t max_tokens) const {
  const int64_t most = std::min<int64_t>(limits_.context, int64_t{pool_.blocks()} * kBlockTokens);
  return std::min(max_tokens, most - prompt_tokens);
}

Error Scheduler::NeverFits(int64_t prompt_tokens) const {
  const int64_t pool_tokens = int64_t{pool_.blocks()} * kBlockTokens;
  return {ErrorCode::kContextLength,
          fmt::format("This model's maximum context length is {} tokens{}, but the prompt has {} and one more is "
                      "needed for an answer. "
                      "Shorten the prompt.",
                      std::min(limits_.context, pool_tokens),
                      pool_tokens < limits_.context ? " (all that the KV memory holds; raise --kv-memory)" : "",
                      prompt_tokens),
          {},
          0};
}

Result<int32_t> Scheduler::Add(const SequenceSpec& spec) {
  if (ClampedMaxTokens(spec.prompt_tokens, INT64_MAX) < 1) return Fail(NeverFits(spec.prompt_tokens));
  if (free_slots_.empty()) {
    return Fail(
        ErrorCode::kOverloaded,
        fmt::format("The server is full: {} requests are running and {} wait. Retry later.", running(), waiting()));
  }
  const int32_t slot = free_slots_.back();
  free_slots_.pop_back();
  Sequence& sequence = at(slot);
  sequence.state = State::kWaiting;
  sequence.spec = spec;
  sequence.spec.max_tokens = ClampedMaxTokens(spec.prompt_tokens, spec.max_tokens);
  sequence.length = spec.prompt_tokens;
  sequence.computed = sequence.reached = sequence.cached_tokens = sequence.restore_end = 0;
  sequence.expected_hits = ExpectedHits(spec);
  sequence.asked = sequence.started = sequence.planned = false;
  sequence.number = next_number_++;
  if (sequence.band() == Band::kCritical) brief_until_ = plans_ + kBriefPlans;
  sequence.spec.place.remaining_tokens = sequence.uncached();
  queue_.Add(slot, sequence.spec.place);
  ++here_;
  return slot;
}

// Blocks that the cache holds of a newcomer's prompt.
int64_t Scheduler::ExpectedHits(const SequenceSpec& spec) const {
  const int64_t shareable = spec.Shareable(spec.prompt_tokens);
  return shareable > 0 ? pool_.Peek(*spec.chain, shareable).blocks : 0;
}

QueueSpec Scheduler::PlaceOf(const SequenceSpec& spec) const {
  QueueSpec place = spec.place;
  place.remaining_tokens = spec.prompt_tokens - ExpectedHits(spec) * kBlockTokens;
  return place;
}

void Scheduler::Remove(int32_t slot) {
  Sequence& sequence = at(slot);
  CHECK(sequence.state != State::kFree);
  if (sequence.state == State::kRunning) running_.erase(std::find(running_.begin(), running_.end(), slot));
  EndRestore(sequence);
  if (sequence.generated() > 0) answer_lengths_.Ended(sequence.generated());
  sequence.state = State::kFree;
  sequence.table.Clear();
  queue_.Remove(slot);
  --here_;
  if (!HEADRACE_PLANTED(29)) free_slots_.push_back(slot);
}

std::span<const int32_t> Scheduler::blocks(int32_t slot) const { return at(slot).table.blocks(); }

void Scheduler::Plan(BatchPlan* plan) {
  plan->spans.clear();
  plan->preempted.clear();
  plan->restores.clear();
  plan->rows = plan->prompt_rows = plan->starts = 0;
  logit_rows_ = deferred_ = 0;
  ++plans_;
  const uint64_t recomputed = recomputed_tokens_;
  for (int32_t slot : running_) at(slot).planned = false;
  if (!HEADRACE_PLANTED(22)) queue_.RestoreAside();
  resting_ = batch_rests_ && HasUrgent();
  AdmitUrgent(plan);
  PlanDecodes(plan);
  PlanDrafts(plan);
  PlanPrompts(plan);
  recomputed_.Add(static_cast<double>(recomputed_tokens_ - recomputed), plan->rows);
  plan->places_short = running() >= limits_.sequences_max && queue_.waiting() > 0;
}

// Who is next in line; -1: nobody whose work does not rest.
int32_t Scheduler::Next() const {
  const int32_t slot = queue_.First();
  return slot >= 0 && resting_ && at(slot).band() == Band::kBatch ? -1 : slot;
}

bool Scheduler::HasUrgent() const {
  for (int band = 0; band < static_cast<int>(Band::kBatch); ++band) {
    if (queue_.tokens_in_line(static_cast<Band>(band)) > 0) return true;
  }
  return std::ranges::any_of(running_, [&](int32_t slot) { return at(slot).band() < Band::kBatch; });
}

// Less urgent decodes than this one's rest.
Band Scheduler::LastToDecode() const {
  const int32_t first = Next();
  const Band prompts = first >= 0 ? at(first).band() : Band::kBatch;
  if (prompts == Band::kCritical) return Band::kCritical;
  return prompts < Band::kBatch || resting_ ? Band::kNormal : Band::kBatch;
}

// The first in line that waits takes a place from less urgent work before that work is planned.
void Scheduler::AdmitUrgent(BatchPlan* plan) {
  int32_t slot = Next();
  for (; slot >= 0 && at(slot).state == State::kRunning; slot = Next()) queue_.SetAside(slot);
  if (slot >= 0 && !HasRoomFor(at(slot))) {
    const int32_t victim = Victim();
    if (victim >= 0 && at(victim).band() > at(slot).band()) Admit(slot, plan);
  }
  queue_.RestoreAside();
}

// A running sequence that is not in line decodes. Urgent bands and then the oldest first, so that a preemption takes
// from the newest of the lowest band.
void Scheduler::PlanDecodes(BatchPlan* plan) {
  const Band last = LastToDecode();
  for (int band = 0; band <= static_cast<int>(last); ++band) {
    snapshot_ = running_;  // a preemption takes out of it
    for (int32_t slot : snapshot_) {
      const Sequence& sequence = at(slot);
      if (queue_.InLine(slot) || sequence.restore_end > 0 || static_cast<int>(sequence.band()) != band) continue;
      if (plan->rows >= limits_.batch_tokens_max || logit_rows_ >= limits_.logit_rows_max) return;
      if (GrowOrPreempt(slot, sequence.length, plan)) AddSpan(slot, 1, plan);
    }
  }
}

// Rows of the step in all, its decodes being planned. While critical prompts come they shall find short steps.
int32_t Scheduler::RowBudget(const BatchPlan& plan) const {
  const bool brief = plans_ < brief_until_;
  if (plan.rows == 0 && !brief) return limits_.batch_tokens_max;
  const int32_t most = limits_.shared_tokens_max > 0 ? limits_.shared_tokens_max : limits_.batch_tokens_max;
  if (limits_.itl_target == kNever) return most;
  const int64_t prompts = prompt_budget_.Rows(drafts_.cost().TimeOf(DecodesOf(plan)), brief);
  return static_cast<int32_t>(std::min<int64_t>(most, plan.rows + prompts));
}

// In the order of the queue. The first that cannot be admitted closes the door: nobody behind it slips past, but
// prompts that have begun go on.
void Scheduler::PlanPrompts(BatchPlan* plan) {
  const int32_t decodes = plan->rows;
  int32_t slot = Next();
  const bool critical = slot >= 0 && at(slot).band() == Band::kCritical;
  const int32_t budget = critical ? limits_.batch_tokens_max : RowBudget(*plan);
  bool door_closed = false;
  for (; slot >= 0 && plan->rows < budget && !door_closed; slot = Next()) {
    if (critical && plan->rows > decodes && at(slot).band() > Band::kCritical) return;  // its step is not made longer
    PlanPrompt(slot, budget, &door_closed, plan);
    if (queue_.InLine(slot)) queue_.SetAside(slot);
  }
  if (door_closed && plan->rows < budget) PlanBegunPrompts(budget, plan);
  plan->rows_short = plan->rows >= budget && queue_.tokens_in_line() > 0;
}

void Scheduler::PlanBegunPrompts(int32_t budget, BatchPlan* plan) {
  snapshot_.clear();
  for (int32_t slot : running_) {
    const bool rests = resting_ && at(slot).band() == Band::kBatch;
    if (queue_.InLine(slot) && !at(slot).planned && !rests) snapshot_.push_back(slot);
  }
  std::sort(snapshot_.begin(), snapshot_.end(), [&](int32_t a, int32_t b) { return queue_.GoesBefore(a, b); });
  bool door_closed = true;
  for (int32_t slot : snapshot_) {
    if (plan->rows >= budget) return;
    if (at(slot).state == State::kRunning) PlanPrompt(slot, budget, &door_closed, plan);
  }
}

// Gives the next of its tokens rows, as many as the budget has left.
void Scheduler::PlanPrompt(int32_t slot, int32_t budget, bool* door_closed, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  if (sequence.planned || !JoinPlan(slot, door_closed, plan)) return;
  int64_t rows = std::min<int64_t>(sequence.remaining(), budget - plan->rows);
  const int64_t logit_rows_left = limits_.logit_rows_max - logit_rows_;
  if (sequence.spec.prompt_logits) rows = std::min(rows, logit_rows_left);
  if (rows == sequence.remaining() && logit_rows_left == 0) return;
  if (rows > 0 && GrowOrPreempt(slot, sequence.computed + rows, plan)) AddSpan(slot, static_cast<int32_t>(rows), plan);
}

// Takes what the cache has for a sequence with prompt tokens to compute, and admits it if it waits. False: it gets no
// rows in this step.
bool Scheduler::JoinPlan(int32_t slot, bool* door_closed, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  if (sequence.state == State::kRunning) {
    Adopt(sequence);
    queue_.SetRemaining(slot, sequence.remaining());
    return sequence.computed % kBlockTokens != 0 ||
           !LeavesNextBlockToAnother(sequence, sequence.computed / kBlockTokens, *plan);
  }
  // Who leaves a block to another keeps a place, too: else each step would look at all that wait.
  *door_closed = *door_closed || (deferred_ > 0 && running() + deferred_ >= limits_.sequences_max);
  if (*door_closed) return false;
  if (sequence.shareable() > 0) {
    sequence.expected_hits = pool_.Peek(*sequence.spec.chain, sequence.shareable()).blocks;
    queue_.SetRemaining(slot, sequence.uncached());
    if (LeavesNextBlockToAnother(sequence, sequence.expected_hits, *plan)) {
      ++deferred_;
      return false;
    }
  }
  *door_closed = !Admit(slot, plan);
  return !*door_closed && sequence.restore_end == 0;
}

// Whether a sequence that this plan gives rows to is about to fill the very block, or one waits for it to be restored.
// One of a less urgent band cannot be planned: it is later.
bool Scheduler::LeavesNextBlockToAnother(const Sequence& sequence, int64_t next, const BatchPlan& plan) const {
  if (next >= sequence.shareable()) return false;
  const BlockName& name = sequence.spec.chain->name(next);
  if (restoring_ > 0 &&
      std::ranges::any_of(running_, [&](int32_t slot) { return RestoresBlock(at(slot), next, name); }))
    return true;
  return std::ranges::any_of(plan.spans, [&](const PlannedSpan& span) {
    const Sequence& other = at(span.slot);
    return other.spec.chain != nullptr && other.spec.chain->blocks() > next && other.computed / kBlockTokens <= next &&
           other.spec.chain->name(next) == name;
  });
}

// Lets the cache compute what it can: the blocks that follow those the sequence has.
void Scheduler::Adopt(Sequence& sequence) {
  if (sequence.computed % kBlockTokens != 0 || sequence.shareable() == 0) return;
  const bool again = sequence.computed < sequence.reached;
  sequence.computed += sequence.table.Adopt(*sequence.spec.chain, sequence.shareable(), again) * kBlockTokens;
  CountCached(sequence);
  PinPrompt(sequence);
}

void Scheduler::PinPrompt(Sequence& sequence) {
  const SequenceSpec& spec = sequence.spec;
  if (spec.keep_until > 0) sequence.table.Pin(*spec.chain, spec.prompt_tokens / kBlockTokens, spec.keep_until);
}

// Tokens that the sequence has and never computed.
void Scheduler::CountCached(Sequence& sequence) {
  const int64_t fresh = std::min(sequence.computed, sequence.spec.prompt_tokens) - sequence.reached;
  if (fresh <= 0) return;
  sequence.cached_tokens += HEADRACE_PLANTED(24) ? 2 * fresh : fresh;
  sequence.reached = sequence.computed;
  prefix_counts_.hits += static_cast<uint64_t>(fresh);
}

// Gives the sequence blocks for `tokens` tokens, if need be from the newest of the lowest band; false when that was the
// sequence itself.
bool Scheduler::GrowOrPreempt(int32_t slot, int64_t tokens, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  while (!sequence.table.GrowTo(tokens)) {
    const int32_t victim = Victim();
    Preempt(victim, plan);
    if (victim == slot) return false;
  }
  return true;
}

// Free blocks that no running sequence will need for tokens it already has.
bool Scheduler::HasRoomFor(const Sequence& sequence) const {
  if (running() >= limits_.sequences_max + (HEADRACE_PLANTED(23) ? 1 : 0)) return false;
  int64_t spare = pool_.available_blocks();
  // What it shares with running ones costs nothing; idle cached blocks count as available and are used up.
  if (sequence.shareable() > 0) spare += pool_.Peek(*sequence.spec.chain, sequence.shareable()).in_use;
  for (int32_t slot : running_) spare -= at(slot).table.Missing(at(slot).length);
  return spare >= BlocksFor(sequence.length + 1);
}

// Whether it and all that run will have room until they end, if answers become as long as others did. What less urgent
// ones have counts as room.
bool Scheduler::WillFit(const Sequence& sequence) {
  const auto makes_way = [&](int32_t slot) { return at(slot).band() > sequence.band(); };
  // Less urgent decodes rest while it is in line, so that nobody would end and make room for it.
  if (!limits_.room_ahead || std::ranges::all_of(running_, makes_way)) return true;
  int64_t shared = pool_.used_blocks() * kBlockTokens;
  room_ahead_.Clear();
  const auto add = [&](const Sequence& s, int64_t tokens) {
    room_ahead_.Add(tokens, answer_lengths_.Remaining(s.generated(), s.spec.max_tokens - s.generated()));
  };
  for (const int32_t slot : running_) {
    const Sequence& other = at(slot);
    shared -= other.table.capacity_tokens() - other.cached_tokens;
    if (other.band() <= sequence.band()) add(other, other.own_tokens());
  }
  const int64_t hits = sequence.shareable() > 0 ? pool_.Peek(*sequence.spec.chain, sequence.shareable()).in_use : 0;
  add(sequence, sequence.length - hits * kBlockTokens);
  // The guess is on the safe side: the more so, the less was computed twice of late.
  const double safe = std::clamp(1 - recomputed_.rate() / kRecomputedMost, 0.0, 1.0);
  const double room = (1 + kPromisedBeyond * safe) * static_cast<double>(pool_.blocks() * kBlockTokens);
  return static_cast<double>(room_ahead_.PeakTokens() + std::max<int64_t>(0, shared)) <= room;
}

bool Scheduler::Admit(int32_t slot, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  if (!WillFit(sequence) && !HEADRACE_PLANTED(38)) return false;
  while (!HasRoomFor(sequence)) {
    const int32_t victim = Victim();
    // Only a more urgent band takes from others.
    if (victim < 0 || at(victim).band() <= sequence.band() || HEADRACE_PLANTED(30)) return false;
    Preempt(victim, plan);
  }
  sequence.state = State::kRunning;
  const auto older = [&](int32_t a, int32_t b) { return at(a).number < at(b).number; };
  running_.insert(std::upper_bound(running_.begin(), running_.end(), slot, older), slot);
  Adopt(sequence);
  queue_.SetRemaining(slot, sequence.remaining());
  StartRestore(slot, plan);
  if (sequence.spec.chain != nullptr && !std::exchange(sequence.asked, true))
    prefix_counts_.asked += static_cast<uint64_t>(sequence.spec.prompt_tokens);
  return true;
}

// What the pool lacks of its prompt and the tier below has. There is room: that was asked for the whole prompt. It is
// out of line until it has its blocks, so that nobody's turn waits for them.
void Scheduler::StartRestore(int32_t slot, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  const int64_t first = sequence.computed / kBlockTokens, end = sequence.shareable();
  if (restorer_ == nullptr || sequence.computed % kBlockTokens != 0 || first >= end) return;
  const int64_t blocks = restorer_->BlocksToRestore(*sequence.spec.chain, first, end);
  if (blocks == 0 || !sequence.table.GrowTo((first + blocks) * kBlockTokens)) return;
  sequence.restore_end = first + blocks;
  ++restoring_;
  plan->restores.push_back({slot, sequence.spec.chain, first, sequence.restore_end});
  Begin(slot, plan);
  queue_.Leave(slot);
}

void Scheduler::EndRestore(Sequence& sequence) {
  if (std::exchange(sequence.restore_end, 0) > 0) --restoring_;
}

bool Scheduler::RestoresBlock(const Sequence& sequence, int64_t block, const BlockName& name) const {
  return block < sequence.restore_end && sequence.computed / kBlockTokens <= block &&
         sequence.spec.chain->name(block) == name;
}

void Scheduler::Restored(int32_t slot, int64_t blocks) {
  Sequence& sequence = at(slot);
  CHECK_LE(sequence.computed / kBlockTokens + blocks, sequence.restore_end);
  EndRestore(sequence);
  sequence.computed += blocks * kBlockTokens;
  CountCached(sequence);
  queue_.Return(slot, sequence.remaining());
  Publish(slot);
}

void Scheduler::AddSpan(int32_t slot, int32_t rows, BatchPlan* plan) {
  Sequence& sequence = at(slot);
  const bool samples = rows == sequence.remaining();
  plan->spans.push_back({slot, sequence.computed, rows, samples});
  plan->rows += rows;
  const bool in_prompt = sequence.spec.prompt_logits && sequence.computed < sequence.spec.prompt_tokens;
  logit_rows_ += in_prompt ? rows : samples ? 1 : 0;
  sequence.planned = true;
  // Computing again what a preemption lost is nobody's fault.
  const int64_t end = sequence.computed + rows;
  const int64_t fresh = end - std::max(sequence.computed, sequence.reached);
  if (fresh > 0) queue_.Charge(slot, fresh);
  recomputed_tokens_ += static_cast<uint64_t>(rows - std::max<int64_t>(fresh, 0));
  if (!queue_.InLine(slot)) return;
  plan->prompt_rows += rows;
  Begin(slot, plan);
  if (samples) {
    queue_.Leave(slot);
  } else {
    queue_.SetRemaining(slot, sequence.length - end);
  }
}

// Once for each sequence.
void Scheduler::Begin(int32_t slot, BatchPlan* plan) {
  if (std::exchange(at(slot).started, true)) return;
  ++plan->starts;
  queue_.Begin(slot);
}

// The running sequence to give up first: newest of the lowest band, planned ones last. -1: none is running.
int32_t Scheduler::Victim() const {
  int32_t victim = -1;
  for (int32_t slot : running_) {
    if (!at(slot).planned && (victim < 0 || at(slot).band() >= at(victim).band() || HEADRACE_PLANTED(25)))
      victim = slot;
  }
  return victim;
}

void Scheduler::Preempt(int32_t slot, BatchPlan* plan) {
  CHECK_GE(slot, 0);
  Sequence& sequence = at(slot);
  CHECK(!sequence.planned);
  sequence.table.Clear();
  EndRestore(sequence);
  std::erase_if(plan->restores, [slot](const PlannedRestore& restore) { return restore.slot == slot; });
  sequence.computed = 0;
  sequence.state = State::kWaiting;
  running_.erase(std::find(running_.begin(), running_.end(), slot));
  if (!HEADRACE_PLANTED(26)) queue_.Return(slot, sequence.remaining());
  ++preemptions_;
  plan->preempted.push_back(slot);
}

void Scheduler::Advance(const PlannedSpan& span, bool sampled, int32_t accepted) {
  Sequence& sequence = at(span.slot);
  CHECK(sequence.state == State::kRunning);
  CHECK_LE(accepted, span.drafts);
  sequence.computed += span.rows - span.drafts + accepted - (HEADRACE_PLANTED(27) && span.rows > 1 ? 1 : 0);
  sequence.reached = std::max(sequence.reached, sequence.computed);
  if (sampled && !HEADRACE_PLANTED(28)) sequence.length += 1 + accepted;
  sequence.planned = false;
}

void Scheduler::Publish(int32_t slot) {
  Sequence& sequence = at(slot);
  if (sequence.spec.chain == nullptr) return;
  sequence.spec.chain->NameNew();
  sequence.table.Publish(*sequence.spec.chain, sequence.computed / kBlockTokens);
  PinPrompt(sequence);
}

void Scheduler::CheckIntegrity() const {
  std::vector<const BlockTable*> tables;
  int32_t here = 0, restoring = 0;
  for (int32_t slot = 0; slot < static_cast<int32_t>(sequences_.size()); ++slot) {
    const Sequence& s = at(slot);
    const bool listed = std::ranges::find(running_, slot) != running_.end();
    CHECK_EQ(listed, s.state == State::kRunning);
    CHECK_EQ(queue_.Has(slot), s.state != State::kFree);
    if (s.state == State::kFree) continue;
    ++here;
    if (s.state == State::kWaiting) {
      CHECK(queue_.InLine(slot));
      CHECK(s.table.blocks().empty());
      CHECK_EQ(s.computed, 0);
      CHECK_EQ(s.restore_end, 0);
    }
    if (s.restore_end > 0) {
      ++restoring;
      CHECK(!s.planned);
      CHECK_EQ(s.computed % kBlockTokens, 0);
      CHECK_LE(s.restore_end * kBlockTokens, s.length);
      CHECK_LE(s.restore_end * kBlockTokens, s.table.capacity_tokens());
    }
    // A sequence that decodes has one token to compute; one whose step is under way has none.
    CHECK(queue_.InLine(slot) != (s.restore_end > 0) || s.remaining() <= 1 || s.planned);
    CHECK_LE(s.computed, s.length);
    CHECK_LE(s.computed, s.table.capacity_tokens());
    CHECK_LE(s.length, s.spec.prompt_tokens + s.spec.max_tokens);
    CHECK_LE(s.length, limits_.context);
    tables.push_back(&s.table);
  }
  CHECK_EQ(here, here_);
  CHECK(std::ranges::is_sorted(running_, {}, [&](int32_t slot) { return at(slot).number; }));
  CHECK_EQ(restoring, restoring_);
  CHECK_LE(running(), limits_.sequences_max);
  CHECK_EQ(static_cast<size_t>(here_) + free_slots_.size(), sequences_.size());
  queue_.CheckIntegrity();
  CheckPoolIntegrity(pool_, tables);
}

}  // namespace headrace
