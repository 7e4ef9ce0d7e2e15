// Time comes through a port, so that the simulator and the tests run the production code on virtual time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace headrace {

// A point on a monotonic clock, in nanoseconds since an arbitrary origin.
using TimeNs = int64_t;
constexpr TimeNs kNsPerUs = 1'000;
constexpr TimeNs kNsPerMs = 1'000'000;
constexpr TimeNs kNsPerSecond = 1'000'000'000;
constexpr TimeNs kNsPerMinute = 60 * kNsPerSecond;
// Later than any deadline: "no deadline".
constexpr TimeNs kNever = INT64_MAX;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeNs Now() const = 0;           // monotonic
  virtual int64_t UnixSeconds() const = 0;  // wall clock, for `created` stamps
};

class SystemClock final : public Clock {
 public:
  TimeNs Now() const override { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  int64_t UnixSeconds() const override {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

// Moves only when told to.
class VirtualClock final : public Clock {
 public:
  TimeNs Now() const override { return now_.load(std::memory_order_relaxed); }
  int64_t UnixSeconds() const override { return Now() / kNsPerSecond; }
  void Advance(TimeNs by) { now_.fetch_add(by, std::memory_order_relaxed); }
  void Set(TimeNs to) { now_.store(to, std::memory_order_relaxed); }

 private:
  std::atomic<TimeNs> now_{0};
};

}  // namespace headrace
