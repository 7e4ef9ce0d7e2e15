// The scheduler: which sequences compute which tokens in the next step, under one budget of rows and one KV pool.
// It knows lengths, never token ids. One thread at a time; Plan() allocates nothing. It reads no clock, so the
// simulator and production run the same decisions.
//
// Policy: decodes first, each one row and as many drafts as pay; the rest of the budget goes to prompts in queueing/'s
// order, in chunks. A waiting sequence is admitted when the pool can hold all its tokens beside what running prompts
// still need, so prompts never deadlock; decodes may overcommit, and then the newest sequence of the lowest band is
// preempted and later recomputed (its sent tokens stay true: they are part of its prompt then). A waiting sequence of a
// more urgent band preempts too. While a critical prompt is in line less urgent decodes rest, and batch decodes while
// any other prompt is: a band is strict in time, too.
//
// Prefix cache: what the pool holds of a prompt is adopted at admission and, while a prompt is computed, wherever it
// meets a block that another sequence has published since. A sequence whose next block is computed by one that this
// step has planned before it leaves that block to it, and looks again in the next step. It waits for nobody else, and
// whoever it waits for gets rows now, so there is nothing to hand over when that one ends and nobody waits for ever.
//
// Second tier (restore.h): a sequence whose blocks are being restored is running, holds them, and gets no rows. Others
// leave these blocks to it as if it computed them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "kv_cache/block_pool.h"
#include "queueing/fading_rate.h"
#include "queueing/waiting_queue.h"
#include "scheduler/answer_lengths.h"
#include "scheduler/draft_planner.h"
#include "scheduler/prompt_budget.h"
#include "scheduler/restore.h"
#include "scheduler/room_ahead.h"

namespace headrace {

struct SchedulerLimits {
  int64_t context = 0;            // tokens of one sequence, at most
  int32_t batch_tokens_max = 0;   // rows of one step
  int32_t shared_tokens_max = 0;  // rows of one in which a sequence decodes, whose next token waits; 0: no fewer
  int32_t logit_rows_max = 0;     // rows with logits of one step, >= sequences_max
  int32_t sequences_max = 0;      // running at once
  int32_t waiting_max = 0;        // beyond those that run
  bool prefix_cache = false;
  bool room_ahead = true;  // admits what will fit until it ends (room_ahead.h); else what fits now
  QueueOrder order = QueueOrder::kFair;
  TimeNs itl_target = kNever;  // of a step in which a sequence decodes (prompt_budget.h); 0: automatic, kNever: none
};

// What the scheduler is told about a new sequence.
struct SequenceSpec {
  int64_t prompt_tokens = 0;
  int64_t max_tokens = 0;       // generated tokens, at most
  bool prompt_logits = false;   // every prompt row wants logits (echo with logprobs)
  QueueSpec place;              // in line; remaining_tokens is filled in here
  BlockChain* chain = nullptr;  // names of its blocks; lives until Remove. Null: it shares nothing
  TimeNs keep_until = 0;        // the blocks of its prompt are pinned until then; 0: they are not

  // Blocks of its first `tokens` that may come from the cache: never the last token, whose logits are wanted, and none
  // of a prompt whose every row wants them.
  int64_t Shareable(int64_t tokens) const {
    return chain == nullptr || prompt_logits ? 0 : (tokens - 1) / kBlockTokens;
  }
};

// Tokens of prompts, since the start.
struct PrefixCounts {
  uint64_t asked = 0;  // of sequences that were admitted with a chain
  uint64_t hits = 0;   // of these, taken from the cache and not computed by the sequence itself before
};

// One sequence's share of a step.
struct PlannedSpan {
  int32_t slot = 0;
  int64_t first_position = 0;
  int32_t rows = 0;
  bool samples = false;  // its last row yields the next token
  int32_t drafts = 0;    // the last so many of a decode's rows, each of which yields a token
};

struct BatchPlan {
  std::vector<PlannedSpan> spans;
  std::vector<int32_t> preempted;  // slots that lost their blocks in this plan
  std::vector<PlannedRestore> restores;
  int32_t rows = 0;
  int32_t prompt_rows = 0;    // of these, of prompts
  int32_t starts = 0;         // sequences that left the line for good: the first plan with rows of theirs
  bool rows_short = false;    // prompt tokens that could have been computed were left for the next step
  bool places_short = false;  // sequences wait because as many run as may
};

class Scheduler {
 public:
  // REQUIRES: all limits > 0, kv_blocks >= 1.
  Scheduler(const SchedulerLimits& limits, int32_t kv_blocks);

  // The prompt plus one token must fit the context and the empty pool (kContextLength otherwise); max_tokens is clamped
  // to what is left. kOverloaded when sequences_max + waiting_max are here. Returns the slot.
  Result<int32_t> Add(const SequenceSpec& spec);
  // The refusal of a prompt that can never fit, naming both numbers.
  Error NeverFits(int64_t prompt_tokens) const;
  // What Add would clamp to; below 1 when the prompt can never fit. Any thread.
  int64_t ClampedMaxTokens(int64_t prompt_tokens, int64_t max_tokens) const;

  // Batch work rests while anything else is here (see queueing/brown_out.h).
  void RestBatch(bool rests) { batch_rests_ = rests; }

  // Plans one step into `plan`, whose vectors never grow beyond what ReservePlan gave them.
  void Plan(BatchPlan* plan);
  void ReservePlan(BatchPlan* plan) const;
  // Tells that the span was computed; with `sampled` the sequence grew by one token and by `accepted` of its drafts.
  // The rows of the others are computed again with what was drawn instead.
  void Advance(const PlannedSpan& span, bool sampled, int32_t accepted = 0);
  // How long the step of `plan` took; before Advance.
  void Measured(const BatchPlan& plan, TimeNs time);

  // Whether the next Plan, if it preempts nobody, gives the sequence a decode.
  bool Decodes(int32_t slot) const { return at(slot).state == State::kRunning && !queue_.InLine(slot); }
  // Drafts that a sequence could verify in the next Plan, if it decodes then.
  void OfferDrafts(int32_t slot, const DraftOffer& offer);
  // Drafts of one sequence and step; 0 stops speculation. From the next Plan on.
  void SetDraftsMax(int32_t drafts) { drafts_max_ = std::clamp(drafts, 0, kDraftsMax); }
  // The blocks that it has computed whole may be shared from now on. After Advance, unless its step failed.
  void Publish(int32_t slot);
  // Pins that end by `now`, from the next Plan on.
  void ExpirePins(TimeNs now) { pool_.ExpirePins(now); }
  void Remove(int32_t slot);

  // Who is in line, for admission and expiry.
  const WaitingQueue& queue() const { return queue_; }
  // The place in line that a newcomer would have: what the cache holds of its prompt is no work.
  QueueSpec PlaceOf(const SequenceSpec& spec) const;
  // Sequences that may begin without waiting for another to end.
  int32_t free_places() const { return std::max(0, limits_.sequences_max - (here_ - queue_.waiting())); }

  // Who is asked at admissions from now on; outlives the scheduler or the next call. Null: nobody.
  void SetRestorer(BlockRestorer* restorer) { restorer_ = restorer; }
  void SetBlockNotes(BlockNotes* notes) { pool_.SetNotes(notes); }
  // The first `blocks` of those that the sequence waits for are filled, the others will not be; they are published.
  void Restored(int32_t slot, int64_t blocks);
  // Sequences that wait for blocks.
  int32_t restoring() const { return restoring_; }

  std::span<const int32_t> blocks(int32_t slot) const;
  int64_t max_tokens(int32_t slot) const { return at(slot).spec.max_tokens; }
  bool HasWork() const { return here_ > 0; }
  int32_t running() const { return static_cast<int32_t>(running_.size()); }
  int32_t waiting() const { return here_ - running(); }
  int64_t waiting_tokens() const { return queue_.tokens_in_line(); }  // of prompts, waiting and running
  // Prompt tokens of this sequence that came from the cache.
  int64_t cached_tokens(int32_t slot) const { return at(slot).cached_tokens; }
  const PrefixCounts& prefix_counts() const { return prefix_counts_; }
  const BlockPool& pool() const { return pool_; }
  uint64_t preemptions() const { return preemptions_; }
  // Tokens planned that had been computed before a preemption lost them.
  uint64_t recomputed_tokens() const { return recomputed_tokens_; }
  const SchedulerLimits& limits() const { return limits_; }

  // Every invariant, by CHECK. For tests and fault runs, after every step.
  void CheckIntegrity() const;

 private:
  enum class State : uint8_t { kFree, kWaiting, kRunning };
  struct Sequence {
    explicit Sequence(BlockPool& pool, int64_t blocks_max) : table(pool, blocks_max) {}
    State state = State::kFree;
    SequenceSpec spec;
    int64_t length = 0;    // tokens known: prompt and generated
    int64_t computed = 0;  // of those, in the KV pool
    int64_t reached = 0;   // the most that computed has been
    int64_t cached_tokens = 0;
    int64_t expected_hits = 0;  // blocks that the cache held when it was asked last: an estimate, for the order only
    bool asked = false;         // counted in PrefixCounts::asked
    uint64_t number = 0;        // arrival order
    bool started = false;       // has had rows, or waits for blocks
    bool planned = false;       // in the plan under construction
    DraftOffer offer;
    uint64_t offered_for = 0;  // the plan that the offer is for
    int64_t restore_end = 0;   // its blocks from computed / 64 up to here are being restored; 0: none are
    BlockTable table;
    Band band() const { return spec.place.band; }
    int64_t generated() const { return length - spec.prompt_tokens; }
    // Tokens that lie, or will when its prompt is computed, in blocks that it does not share.
    int64_t own_tokens() const { return std::max(length, table.capacity_tokens()) - cached_tokens; }
    int64_t remaining() const { return length - computed; }
    int64_t shareable() const { return spec.Shareable(length); }
    int64_t uncached() const {
      return state == State::kWaiting ? std::max<int64_t>(1, remaining() - expected_hits * kBlockTokens) : remaining();
    }
  };

  Sequence& at(int32_t slot) { return *sequences_[static_cast<size_t>(slot)]; }
  const Sequence& at(int32_t slot) const { return *sequences_[static_cast<size_t>(slot)]; }
  int32_t Next() const;
  bool HasUrgent() const;
  Band LastToDecode() const;
  void PlanDecodes(BatchPlan* plan);
  void PlanDrafts(BatchPlan* plan);
  void AddDrafts(int32_t drafts, BatchPlan* plan, PlannedSpan* span);
  void AdmitUrgent(BatchPlan* plan);
  DecodeLoad DecodesOf(const BatchPlan& plan) const;
  int32_t RowBudget(const BatchPlan& plan) const;
  void PlanPrompts(BatchPlan* plan);
  void PlanPrompt(int32_t slot, int32_t budget, bool* door_closed, BatchPlan* plan);
  void PlanBegunPrompts(int32_t budget, BatchPlan* plan);
  bool Admit(int32_t slot, BatchPlan* plan);
  int64_t ExpectedHits(const SequenceSpec& spec) const;
  bool HasRoomFor(const Sequence& sequence) const;
  bool WillFit(const Sequence& sequence);
  void Adopt(Sequence& sequence);
  void CountCached(Sequence& sequence);
  void PinPrompt(Sequence& sequence);
  void StartRestore(int32_t slot, BatchPlan* plan);
  void EndRestore(Sequence& sequence);
  void Begin(int32_t slot, BatchPlan* plan);
  bool RestoresBlock(const Sequence& sequence, int64_t block, const BlockName& name) const;
  bool LeavesNextBlockToAnother(const Sequence& sequence, int64_t next, const BatchPlan& plan) const;
  bool JoinPlan(int32_t slot, bool* door_closed, BatchPlan* plan);
  bool GrowOrPreempt(int32_t slot, int64_t tokens, BatchPlan* plan);
  void AddSpan(int32_t slot, int32_t rows, BatchPlan* plan);
  int32_t Victim() const;
  void Preempt(int32_t slot, BatchPlan* plan);

  const SchedulerLimits limits_;
  BlockPool pool_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<int32_t> free_slots_;
  WaitingQueue queue_;             // of all that are here; in line: those with prompt tokens to compute
  std::vector<int32_t> running_;   // slots, in order of arrival
  std::vector<int32_t> snapshot_;  // scratch: of running ones
  int32_t here_ = 0;               // slots in use
  int32_t logit_rows_ = 0;         // of the plan under construction
  bool batch_rests_ = false;
  bool resting_ = false;  // in the plan under construction
  int32_t deferred_ = 0;  // waiting ones that it leaves to others' blocks
  int32_t restoring_ = 0;
  BlockRestorer* restorer_ = nullptr;
  uint64_t next_number_ = 0;
  uint64_t preemptions_ = 0, recomputed_tokens_ = 0;
  PrefixCounts prefix_counts_;
  DraftPlanner drafts_;
  AnswerLengths answer_lengths_;
  RoomAhead room_ahead_;   // scratch of WillFit
  FadingRate recomputed_;  // of the rows planned
  PromptBudget prompt_budget_;
  int32_t drafts_max_ = 0;
  uint64_t plans_ = 0, brief_until_ = 0;
};

}  // namespace headrace
