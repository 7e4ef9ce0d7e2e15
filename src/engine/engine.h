// The engine: one queue, one batch, one KV pool. Step(now) is a plain method: take in, plan, build, forward and sample,
// commit. Its thread is a short driver (EngineThread); the simulator calls the same Step on virtual time.
//
// Threads: Submit, Cancel (through the stream) and the counters from anywhere; Step from one thread. A mutex guards the
// scheduler, so that Submit judges by exact facts and answers at once, however long the step under way takes; the step
// holds it to plan and to commit, never while it computes.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/mutex.h"
#include "base/ring.h"
#include "engine/acceptance.h"
#include "engine/adjustment_table.h"
#include "engine/block_mover.h"
#include "engine/decision_recorder.h"
#include "engine/request.h"
#include "engine/tenant_texts.h"
#include "executor/executor.h"
#include "queueing/admission.h"
#include "queueing/brown_out.h"
#include "queueing/service_meter.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace headrace {

struct EngineOptions {
  int32_t waiting_max = 1024;     // requests beyond those that run; a quarter more may wait in the urgent bands
  int32_t shared_tokens_max = 0;  // SchedulerLimits::shared_tokens_max
  bool check_integrity = false;   // CheckIntegrity() after every step
  bool prefix_cache = true;
  bool room_ahead = true;  // SchedulerLimits::room_ahead
  QueueOrder order = QueueOrder::kFair;
  TimeNs itl_target = 0;                  // of a step in which answers wait for a token; 0: automatic, kNever: none
  TimeNs brown_out_wait = kBrownOutWait;  // see queueing/brown_out.h; 0: never
  int32_t drafts_max = 0;                 // draft tokens of one sequence and step; 0: no speculation
  SecondTier* second_tier = nullptr;      // outlives the engine; null: none. Without prefix_cache it is not used
  DecisionSink* decisions = nullptr;      // hears what each step was given and decided; borrowed
  BlockNaming naming = nullptr;           // instead of the keyed hash: a log's own names
  BlockKey cache_key{};                   // secret: whoever has it can make two blocks whose names collide
};

// Counters and gauges; written by the engine's thread, read by anyone.
struct EngineStats {
  std::atomic<uint64_t> steps{0}, rows{0};
  std::atomic<uint64_t> prompt_tokens{0}, generated_tokens{0}, preemptions{0};
  std::atomic<uint64_t> recomputed_tokens{0};                   // that preemptions had lost
  std::atomic<uint64_t> drafted_tokens{0}, accepted_tokens{0};  // draft rows computed; of these, tokens of answers
  std::atomic<uint64_t> finished_stop{0}, finished_length{0}, finished_error{0}, cancelled{0};
  std::atomic<uint64_t> prefix_asked_tokens{0}, prefix_hit_tokens{0}, prefix_evictions{0};  // see PrefixCounts
  std::atomic<int32_t> pinned_blocks{0};
  std::atomic<uint64_t> pins_refused{0};
  std::array<std::atomic<uint64_t>, kVerdicts> refused{};  // by Verdict
  std::array<std::atomic<uint64_t>, kRungs> brown_outs{};  // by Rung: how often it was stepped on
  std::atomic<int32_t> rung{0};
  std::atomic<uint64_t> shortened{0};  // answers, by Rung::kShortAnswers
  std::atomic<int32_t> running{0}, waiting{0}, kv_blocks_used{0}, kv_blocks_cached{0};
  std::atomic<int64_t> waiting_tokens{0};
  std::atomic<TimeNs> last_progress{0};
};

class Engine {
 public:
  // Borrows all; they must outlive the engine.
  Engine(Executor& executor, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options);
  ~Engine();

  // kContextLength when the prompt can never fit; else the refusals of queueing/admission.h. Each push of events rings
  // `bell` once a step; null for none.
  Result<std::shared_ptr<EngineStream>> Submit(std::unique_ptr<EngineRequest> request, Doorbell* bell)
      EXCLUDES_LOCK(mutex_);

  // One step. Returns when to call again at the latest: `now` when there is work, a deadline, or kNever.
  TimeNs Step(TimeNs now) EXCLUDES_LOCK(mutex_);

  // Draft tokens of one sequence and step from the next step on, at most EngineOptions::drafts_max; 0 stops
  // speculation, which changes no answer. Any thread.
  void SetDraftsMax(int32_t drafts) { drafts_wanted_.store(drafts, std::memory_order_relaxed); }

  const EngineStats& stats() const { return stats_; }
  const ExecutorDescription& description() const { return description_; }
  FutexDoorbell& bell() { return bell_; }
  // Requests inside: waiting and running.
  int32_t inside() const { return inside_.load(std::memory_order_relaxed); }
  void CheckIntegrity() const EXCLUDES_LOCK(mutex_);

 private:
  struct Active;  // one sequence inside the engine

  std::unique_ptr<Active> MakeActive(std::unique_ptr<EngineRequest> request, Doorbell* bell);
  Status Admit(const SequenceSpec& spec, TimeNs now) REQUIRES_LOCK(mutex_);
  void Climb(TimeNs now) REQUIRES_LOCK(mutex_);
  void DropCancelledAndLate(TimeNs now) REQUIRES_LOCK(mutex_);
  void FailExpired(Active& active, TimeNs now) REQUIRES_LOCK(mutex_);
  void Build() REQUIRES_LOCK(mutex_);
  Result<const StepOutput*> Forward();
  void BuildSpan(const PlannedSpan& planned) REQUIRES_LOCK(mutex_);
  void AddSample(const Active& active, int32_t row, int32_t span, int32_t target, uint64_t position);
  // Speculation: drafts.cc.
  void ReserveDrafts();
  void PrepareDrafts(Active& active);
  void OfferDrafts() REQUIRES_LOCK(mutex_);
  void OfferDraftsOf(Active& active, int32_t most, size_t* adjustments) REQUIRES_LOCK(mutex_);
  void AddDraftSamples(const Active& active, const PlannedSpan& planned, int32_t row, int32_t span);
  void AddAdjustmentsAfter(const Active& active, std::span<const int32_t> drafted);
  void CountDrafts(const PlannedSpan& span, int32_t accepted);
  void KeepAnswer(const Active& active);
  void Commit(TimeNs now, const StepOutput& output) REQUIRES_LOCK(mutex_);
  void CommitSpan(const PlannedSpan& span, TimeNs now) REQUIRES_LOCK(mutex_);
  void CommitSample(const StepSample& sample, const SampleResult& result, TimeNs now);
  void EndSpan(const PlannedSpan& span) REQUIRES_LOCK(mutex_);
  void CommitToken(Active& active, const SampleResult& result, TimeNs now);
  EndReason EndOf(const Active& active, int32_t token) const;
  void MatchStops(Active& active, int32_t token, TokenEvent* event);
  Status BeginGrammar(Active& active);
  Status FollowGrammar(Active& active, int32_t token, TokenEvent* event);
  void Finish(Active& active, EndReason reason);
  void Fail(Active& active, Error error);
  void FailStep(const Error& error) REQUIRES_LOCK(mutex_);
  void Push(Active& active, const TokenEvent& event);
  void Drop(int32_t slot) REQUIRES_LOCK(mutex_);
  void RingBells();
  void Publish(TimeNs began, TimeNs ended) REQUIRES_LOCK(mutex_);
  TimeNs NextWakeUp(TimeNs now) const REQUIRES_LOCK(mutex_);

  Executor& executor_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  const ExecutorDescription description_;
  const EngineOptions options_;
  const int32_t drafts_max_;
  FutexDoorbell bell_;
  mutable Mutex mutex_;
  Scheduler scheduler_ GUARDED_BY(mutex_);
  Admission admission_ GUARDED_BY(mutex_);
  ServiceMeter meter_ GUARDED_BY(mutex_);
  BrownOut brown_out_ GUARDED_BY(mutex_);
  DecisionRecorder recorder_ GUARDED_BY(mutex_);
  // Indexed by the scheduler's slot. While a step computes, only Submit writes, to slots that are not in it.
  std::vector<std::unique_ptr<Active>> by_slot_;
  std::vector<int32_t> slots_ GUARDED_BY(mutex_);  // in use
  std::vector<int32_t> dropped_;                   // scratch
  std::unique_ptr<BlockMover> mover_;              // null without a second tier
  BatchPlan plan_;
  StepInput input_;
  TenantTexts tenant_texts_;
  Acceptance acceptance_;  // of all requests
  std::atomic<int32_t> drafts_wanted_;
  std::vector<Doorbell*> bells_;  // to ring at the end of the step
  std::atomic<uint64_t> next_id_{1};
  std::atomic<int32_t> inside_{0};
  EngineStats stats_;
};

// Runs an engine until destroyed.
class EngineThread {
 public:
  EngineThread(Engine& engine, const Clock& clock);
  ~EngineThread();

 private:
  void Main();
  Engine& engine_;
  const Clock& clock_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace headrace
