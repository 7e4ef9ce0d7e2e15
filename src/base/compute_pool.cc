#include "base/compute_pool.h"

#include <algorithm>
#include <chrono>

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

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Whether `word` leaves `old` while this thread spins.
bool SpinsWhile(const std::atomic<uint32_t>& word, uint32_t old) {
  for (int turn = 0; turn < kSpinTurns; ++turn) {
    if (word.load(std::memory_order_acquire) != old) return true;
    SpinPause();
  }
  return false;
}

// Sleeps while `word` is `old`.
void SleepWhile(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>& sleepers) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == old) FutexWait(word, old);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

constexpr int ActiveOf(uint32_t start) { return static_cast<int>(start & 0xFF) + 1; }
constexpr uint32_t NextStart(uint32_t start, int active) {
  return ((start & ~0xFFu) + 0x100u) | static_cast<uint32_t>(active - 1);
}

}  // namespace

ComputePool::ComputePool(int threads)
    : threads_(threads), active_(threads), claimed_(static_cast<size_t>(std::max(threads, 1))) {
  CHECK_GE(threads, 1);
  CHECK_LE(threads, kComputeThreadsMax);
  start_ = static_cast<uint32_t>(threads - 1);
  for (int worker = 1; worker < threads; ++worker) workers_.emplace_back([this, worker] { WorkerMain(worker); });
}

ComputePool::~ComputePool() {
  stop_ = true;
  Start(threads_);
  for (std::thread& worker : workers_) worker.join();
}

void ComputePool::RunRaw(Call call, void* arg) {
  call_ = call;
  arg_ = arg;
  Start(active());
  const int64_t begin = governor_ ? NowNs() : 0;
  call(arg, 0);
  Barrier(0);  // all have finished
  if (!governor_) return;
  int64_t slept = 0;
  for (Claimed& claimed : claimed_) slept += claimed.slept_ns.exchange(0, std::memory_order_relaxed);
  governor_->Note(NowNs() - begin, slept);
}

void ComputePool::Start(int active) {
  const uint32_t old = start_.load(std::memory_order_relaxed);
  active_ = active;
  start_.store(NextStart(old, active), std::memory_order_seq_cst);
  if (start_sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(start_);
  if (active <= ActiveOf(old)) return;
  parked_until_.fetch_add(1, std::memory_order_seq_cst);  // behind start_: who parks with the new value saw it
  FutexWakeAll(parked_until_);
}

void ComputePool::WorkerMain(int worker) {
  for (uint32_t seen = static_cast<uint32_t>(threads_ - 1);;) {
    AwaitStart(seen);
    seen = start_.load(std::memory_order_acquire);
    if (worker >= ActiveOf(seen)) {
      Park(seen);
      continue;
    }
    if (stop_) return;
    call_(arg_, worker);
    Barrier(worker);
  }
}

void ComputePool::AwaitStart(uint32_t seen) {
  if (!SpinsWhile(start_, seen)) SleepWhile(start_, seen, start_sleepers_);
}

void ComputePool::Park(uint32_t word) {
  const uint32_t until = parked_until_.load(std::memory_order_seq_cst);
  if (start_.load(std::memory_order_seq_cst) == word) FutexWait(parked_until_, until);
}

void ComputePool::Barrier(int worker) {
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  // Read before this worker has arrived: behind the last barrier of a run the next one may set another number.
  const auto active = static_cast<uint32_t>(active_);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == active) {
    arrived_.store(0, std::memory_order_relaxed);
    for (Claimed& claimed : claimed_) claimed.units.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(generation_);
    return;
  }
  if (SpinsWhile(generation_, generation)) return;
  const int64_t begin = NowNs();
  SleepWhile(generation_, generation, sleepers_);
  claimed_[static_cast<size_t>(worker)].slept_ns.fetch_add(NowNs() - begin, std::memory_order_relaxed);
}

}  // namespace headrace
