// A doorbell wakes a thread that has something to look at. Ringing is cheap, never blocks and coalesces: many rings
// before the owner looks are one wake-up.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

class Doorbell {
 public:
  virtual ~Doorbell() = default;
  virtual void Ring() = 0;  // any thread
};

// The doorbell of a thread that sleeps on it: futex underneath, no system call while the owner is awake.
class FutexDoorbell final : public Doorbell {
 public:
  void Ring() override;
  // Returns when rung since the last Wait, or after timeout_ns (< 0: no limit). One thread.
  void Wait(int64_t timeout_ns);

 private:
  std::atomic<uint32_t> state_{0};  // 0 awake, 1 rung, 2 asleep
};

}  // namespace headrace
