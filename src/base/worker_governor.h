// How many workers of a compute pool are worth waking. A worker that the kernel takes off its processor for another
// process stops all others at the next barrier, for as long as that process may run: two workers beside one busy
// process on two processors are slower than one alone. Pure; nanoseconds come from the pool.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headrace {

class WorkerGovernor {
 public:
  static constexpr int64_t kWindowNs = 20'000'000;          // judged at once
  static constexpr int64_t kHoldNs = 250'000'000;           // with a worker less, before one more is tried
  static constexpr int64_t kHoldLongestNs = 4'000'000'000;  // it doubles with each trial that fails

  explicit WorkerGovernor(int workers) : workers_(workers), active_(workers) {}

  int active() const { return active_; }

  // A run of active() workers took run_ns; they slept slept_ns of it, added up, for others to come to a barrier.
  void Note(int64_t run_ns, int64_t slept_ns) {
    run_ns_ += run_ns;
    slept_ns_ += slept_ns;
    held_ns_ += run_ns;
    if (run_ns_ < kWindowNs) return;
    // While one is away all others sleep: this share of the time is lost.
    const double lost =
        active_ > 1 ? static_cast<double>(slept_ns_) / (static_cast<double>(active_ - 1) * static_cast<double>(run_ns_))
                    : 0;
    run_ns_ = slept_ns_ = 0;
    if (active_ * (1 - lost) < active_ - 1)
      return Change(-1, trial_ ? std::min(2 * hold_ns_, kHoldLongestNs) : kHoldNs);
    if (trial_) hold_ns_ = kHoldNs;
    trial_ = false;
    if (active_ < workers_ && held_ns_ >= hold_ns_) Change(+1, hold_ns_);
  }

 private:
  void Change(int by, int64_t hold_ns) {
    active_ += by;
    trial_ = by > 0;
    hold_ns_ = hold_ns;
    held_ns_ = 0;
  }

  const int workers_;
  int active_;
  bool trial_ = false;                 // the last change added a worker, not judged yet
  int64_t run_ns_ = 0, slept_ns_ = 0;  // of this window
  int64_t held_ns_ = 0;                // since the last change
  int64_t hold_ns_ = kHoldNs;
};

}  // namespace headrace
