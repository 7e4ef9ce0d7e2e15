// Counters of one tier; written by the engine's thread, read by anyone.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

struct TierStats {
  std::atomic<uint64_t> restored{0};  // blocks that were not computed, since they lay here
  std::atomic<uint64_t> spilled{0};   // blocks that came to lie here
  std::atomic<uint64_t> dropped{0};   // blocks that found no room: queue, pins, a pause after a failure
  std::atomic<uint64_t> damaged{0};   // blocks that were not what had been written
  std::atomic<uint64_t> failed{0};    // operations that the system refused
  std::atomic<uint64_t> declined{0};  // blocks that were computed, since that was faster
  std::atomic<int32_t> blocks{0};     // that lie here
  std::atomic<int32_t> pinned{0};

  static void Count(std::atomic<uint64_t>& counter, uint64_t by = 1) {
    counter.fetch_add(by, std::memory_order_relaxed);
  }
};

}  // namespace headrace
