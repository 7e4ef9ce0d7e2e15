// The threads of Forward. Run() executes one function on every worker at once (the caller is worker 0); inside, For()
// splits a stage into units claimed from a counter, so that a preempted thread does not stall the stage, and ends with
// a barrier. The barrier spins for kSpinTurns (about 20 us) and then sleeps; the waker makes no system call when nobody
// sleeps (0.2 us instead of 20-30 us).
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace headrace {

class ComputePool {
 public:
  // REQUIRES: 1 <= threads <= kThreadsMax.
  explicit ComputePool(int threads);
  ~ComputePool();
  ComputePool(const ComputePool&) = delete;
  ComputePool& operator=(const ComputePool&) = delete;

  int threads() const { return threads_; }

  // Calls fn(worker) on every worker and returns when all have finished. One caller at a time; allocates nothing.
  template <typename Fn>
  void Run(Fn&& fn) {
    auto call = [](void* arg, int worker) { (*static_cast<std::remove_reference_t<Fn>*>(arg))(worker); };
    RunRaw(call, &fn);
  }

  // Inside Run, by every worker with the same `units`: runs fn(unit) once for each unit in [0, units), then waits for
  // all. What one stage wrote is visible to the next.
  template <typename Fn>
  void For(int64_t units, Fn&& fn) {
    for (int64_t unit; (unit = next_unit_.fetch_add(1, std::memory_order_relaxed)) < units;) fn(unit);
    Barrier();
  }

  // Inside Run, by every worker.
  void Barrier();

 private:
  using Call = void (*)(void*, int);
  void RunRaw(Call call, void* arg);
  void WorkerMain(int worker);

  const int threads_;
  std::vector<std::thread> workers_;
  Call call_ = nullptr;
  void* arg_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<int64_t> next_unit_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<uint32_t> sleepers_{0};
};

constexpr int kComputeThreadsMax = 256;

}  // namespace headrace
