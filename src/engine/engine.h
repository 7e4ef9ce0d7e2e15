// The engine: one queue, one batch, one KV pool. Step(now) is a plain method: take in, plan, build, forward and sample,
// commit. Its thread is a short driver (EngineThread); the simulator calls the same Step on virtual time.
//
// Threads: Submit, Cancel (through the stream) and the counters from anywhere; Step from one thread.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/ring.h"
#include "engine/adjustment_table.h"
#include "engine/request.h"
#include "executor/executor.h"
#include "scheduler/scheduler.h"
#include "text/tokenizer.h"

namespace headrace {

struct EngineOptions {
  int32_t waiting_max = 1024;     // requests beyond those that run
  int32_t shared_tokens_max = 0;  // SchedulerLimits::shared_tokens_max
  bool check_integrity = false;   // CheckIntegrity() after every step
  bool prefix_cache = true;
  BlockKey cache_key{};  // secret: whoever has it can make two blocks whose names collide
};

// Counters and gauges; written by the engine's thread, read by anyone.
struct EngineStats {
  std::atomic<uint64_t> steps{0}, rows{0};
  std::atomic<uint64_t> prompt_tokens{0}, generated_tokens{0}, preemptions{0};
  std::atomic<uint64_t> finished_stop{0}, finished_length{0}, finished_error{0}, cancelled{0};
  std::atomic<uint64_t> prefix_asked_tokens{0}, prefix_hit_tokens{0}, prefix_evictions{0};  // see PrefixCounts
  std::atomic<int32_t> running{0}, waiting{0}, kv_blocks_used{0}, kv_blocks_cached{0};
  std::atomic<int64_t> waiting_tokens{0};
  std::atomic<TimeNs> last_progress{0};
};

class Engine {
 public:
  // Borrows all; they must outlive the engine.
  Engine(Executor& executor, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options);
  ~Engine();

  // kContextLength when the prompt can never fit, kOverloaded (with retry_after_ms) when full. Each push of events
  // rings `bell` once a step; null for none.
  Result<std::shared_ptr<EngineStream>> Submit(std::unique_ptr<EngineRequest> request, Doorbell* bell);

  // One step. Returns when to call again at the latest: `now` when there is work, a deadline, or kNever.
  TimeNs Step(TimeNs now);

  const EngineStats& stats() const { return stats_; }
  const ExecutorDescription& description() const { return description_; }
  FutexDoorbell& bell() { return bell_; }
  // Requests inside: waiting and running.
  int32_t inside() const { return inside_.load(std::memory_order_relaxed); }
  // Measured over the last seconds; 0 before the first step.
  double TokensPerSecond() const { return tokens_per_second_.load(std::memory_order_relaxed); }
  void CheckIntegrity() const;

 private:
  struct Active;  // one sequence inside the engine
  struct Arrival {
    std::unique_ptr<Active> active;
  };

  void TakeIn(TimeNs now);
  void TakeArrivals(TimeNs now);
  void DropCancelledAndLate(TimeNs now);
  void Build();
  void BuildSpan(const PlannedSpan& planned);
  void AddSample(const Active& active, int32_t row, int32_t span, int32_t target, uint64_t position);
  void Commit(TimeNs now, const StepOutput& output);
  void CommitToken(Active& active, const SampleResult& result, TimeNs now);
  EndReason EndOf(const Active& active, int32_t token) const;
  void MatchStops(Active& active, int32_t token, TokenEvent* event);
  void Finish(Active& active, EndReason reason);
  void Fail(Active& active, Error error);
  void FailStep(const Error& error);
  void Push(Active& active, const TokenEvent& event);
  void Drop(int32_t slot);
  void RingBells();
  void Publish(TimeNs now);
  TimeNs NextWakeUp(TimeNs now) const;

  Executor& executor_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  const ExecutorDescription description_;
  const EngineOptions options_;
  Scheduler scheduler_;
  FutexDoorbell bell_;
  Mailbox<Arrival> arrivals_;
  std::vector<Arrival> arrived_;                  // scratch of TakeArrivals
  std::vector<std::unique_ptr<Active>> by_slot_;  // indexed by the scheduler's slot
  std::vector<int32_t> slots_;                    // in use
  std::vector<int32_t> dropped_;                  // scratch
  BatchPlan plan_;
  StepInput input_;
  std::vector<Doorbell*> bells_;  // to ring at the end of the step
  std::atomic<uint64_t> next_id_{1};
  std::atomic<int32_t> inside_{0};
  std::atomic<double> tokens_per_second_{0};
  TimeNs rate_since_ = 0;
  uint64_t rate_rows_ = 0;
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
