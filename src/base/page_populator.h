// Makes memory ready ahead of its first use. The system zeroes a page when it is touched first, and a prompt whose keys
// and values go to new pages pays for that while somebody waits: a tenth of its time. A thread of its own does it
// instead, for a stock of pages behind those in use, and only while nothing is computed. It changes no byte, so the
// memory may be used meanwhile. Where the system cannot do it (before Linux 5.14) nothing happens.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "base/doorbell.h"

namespace headrace {

class PagePopulator {
 public:
  // `parts`: memory that is used from the start to the end, all parts alike; outlives this. `stock`: bytes of each part
  // that are to be ready behind those in use.
  PagePopulator(std::vector<std::span<std::byte>> parts, uint64_t stock);
  ~PagePopulator();

  // So much of each part is in use, or about to be. Any thread; a load unless it is more than ever before.
  void Use(uint64_t bytes);
  // Something is being computed from now on, or no longer.
  void SetBusy(bool busy);

  // Of each part; for tests.
  uint64_t ready() const { return ready_.load(std::memory_order_acquire); }

 private:
  void Main();
  bool Quiet();

  const std::vector<std::span<std::byte>> parts_;
  const uint64_t stock_;
  std::atomic<uint64_t> used_{0}, ready_{0};
  std::atomic<uint64_t> turns_{0};  // odd: busy
  std::atomic<bool> stop_{false};
  FutexDoorbell bell_;
  std::thread thread_;
};

}  // namespace headrace
