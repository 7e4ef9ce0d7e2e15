#include "base/doorbell.h"

#include "base/futex.h"

namespace headrace {

void FutexDoorbell::Ring() {
  if (state_.exchange(1, std::memory_order_acq_rel) == 2) FutexWakeAll(state_);
}

void FutexDoorbell::Wait(int64_t timeout_ns) {
  uint32_t awake = 0;
  if (state_.compare_exchange_strong(awake, 2, std::memory_order_acq_rel)) FutexWait(state_, 2, timeout_ns);
  state_.store(0, std::memory_order_release);
}

}  // namespace headrace
