// The two futex calls that the barrier and the doorbell need. Linux only, process-private.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace headrace {

// Sleeps while *word == expected; timeout_ns < 0: no limit.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns = -1) {
  timespec limit{};
  limit.tv_sec = timeout_ns / 1'000'000'000;
  limit.tv_nsec = timeout_ns % 1'000'000'000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected,
          timeout_ns < 0 ? nullptr : &limit, nullptr, 0);
}
inline void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace headrace
