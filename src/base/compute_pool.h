// The threads of Forward. Run() executes one function on every worker at once (the caller is worker 0); inside, For()
// splits a stage into units. Each worker owns an equal run of them and claims from it, a few at a time, on a cache line
// of its own; one that is done takes from the others, so that a preempted thread does not stall the stage. A stage ends
// with a barrier, which spins for kSpinTurns (about 20 us) and then sleeps; the waker makes no system call when nobody
// sleeps (0.2 us instead of 20-30 us). Beside other busy processes fewer workers may be faster (worker_governor.h):
// then the last ones sleep through whole runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/worker_governor.h"

namespace headrace {

class ComputePool {
 public:
  // REQUIRES: 1 <= threads <= kThreadsMax.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }
  // Workers of the next Run: all of them, unless Adapt() was called and some are not worth waking.
  int active() const { return governor_ ? governor_->active() : threads_; }
  // From the next Run on; not while one is under way.
  void Adapt() { governor_.emplace(threads_); }

  // Calls fn(worker) on every active worker and returns when all have finished. One caller at a time; allocates
  // nothing.
  template <typename Fn>
  void Run(Fn&& fn) {
    auto call = [](void* arg, int worker) { (*static_cast<std::remove_reference_t<Fn>*>(arg))(worker); };
    RunRaw(call, &fn);
  }

  // Inside Run, by every worker with the same `units` and `grain`: calls fn(begin, end) for pieces of [0, units) of at
  // most `grain` units, each unit once, then waits for all. What one stage wrote is visible to the next.
  template <typename Fn>
  void ForRanges(int worker, int64_t units, int64_t grain, Fn&& fn) {
    for (int i = 0; i < active_; ++i) {
      const int owner = worker + i < active_ ? worker + i : worker + i - active_;
      const int64_t first = units * owner / active_, end = units * (owner + 1) / active_;
      std::atomic<int64_t>& claimed = claimed_[static_cast<size_t>(owner)].units;
      // Looked at before it is claimed: a line that others have finished with stays shared.
      while (claimed.load(std::memory_order_relaxed) < end - first) {
        const int64_t begin = first + claimed.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= end) break;
        fn(begin, begin + grain < end ? begin + grain : end);
      }
    }
    Barrier(worker);
  }

  // The same one unit at a time: fn(unit).
  template <typename Fn>
  void For(int worker, int64_t units, Fn&& fn) {
    ForRanges(worker, units, 1, [&](int64_t begin, int64_t) { fn(begin); });
  }

  // Inside Run, by every worker.
  void Barrier(int worker);

 private:
  using Call = void (*)(void*, int);
  void RunRaw(Call call, void* arg);
  void WorkerMain(int worker);
  void Start(int active);
  // Returns when start_ is not `seen` any more.
  void AwaitStart(uint32_t seen);
  // Sleeps while start_ is `word`, which leaves this worker out.
  void Park(uint32_t word);

  const int threads_;
  int active_;  // of this Run
  std::vector<std::thread> workers_;
  Call call_ = nullptr;
  void* arg_ = nullptr;
  bool stop_ = false;
  std::optional<WorkerGovernor> governor_;
  struct alignas(64) Claimed {
    std::atomic<int64_t> units{0};     // of this worker's run, since the last barrier
    std::atomic<int64_t> slept_ns{0};  // by this worker at barriers, not yet noted
  };
  std::vector<Claimed> claimed_;
  // The number of the run in the upper bits, its active workers less one in the lower eight: read together.
  alignas(64) std::atomic<uint32_t> start_{0};
  std::atomic<uint32_t> start_sleepers_{0};
  std::atomic<uint32_t> parked_until_{0};  // changes when a run has other workers than the one before
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

constexpr int kComputeThreadsMax = 256;  // the lower eight bits of start_

}  // namespace headrace
