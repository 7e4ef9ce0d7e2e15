#include "base/compute_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/futex.h"

namespace headrace {
namespace {

// One pause is about 14 ns on Intel server parts since Skylake (40 on some), so this is 15 to 60 us: above the length
// of a stage's imbalance, below the cost of two sleeps.
constexpr int kSpinTurns = 1500;

inline void SpinPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ComputePool::ComputePool(int threads) : threads_(threads), claimed_(static_cast<size_t>(std::max(threads, 1))) {
  CHECK_GE(threads, 1);
  CHECK_LE(threads, kComputeThreadsMax);
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { WorkerMain(worker); });
}

ComputePool::~ComputePool() {
  stop_ = true;
  if (threads_ > 1) Barrier();  // releases the workers that wait for the next Run
  for (std::thread& worker : workers_) worker.join();
}

void ComputePool::RunRaw(Call call, void* arg) {
  call_ = call;
  arg_ = arg;
  Barrier();  // start
  call(arg, 0);
  Barrier();  // finish
}

void ComputePool::WorkerMain(int worker) {
  for (;;) {
    Barrier();
    if (stop_) return;
    call_(arg_, worker);
    Barrier();
  }
}

void ComputePool::Barrier() {
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    for (Claimed& claimed : claimed_) claimed.units.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(generation_);
    return;
  }
  for (int turn = 0; turn < kSpinTurns; ++turn) {
    if (generation_.load(std::memory_order_acquire) != generation) return;
    SpinPause();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (generation_.load(std::memory_order_seq_cst) == generation) FutexWait(generation_, generation);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace headrace
