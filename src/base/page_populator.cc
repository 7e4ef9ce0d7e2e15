#include "base/page_populator.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace headrace {
namespace {

constexpr int kMadvPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older headers lack
// A third of a millisecond's work: what a computation that begins meanwhile has to share a processor with.
constexpr uint64_t kPieceBytes = 2 << 20;
// Between two steps of one answer pass microseconds: that is no rest.
constexpr TimeNs kRest = 2 * kNsPerMs;

}  // namespace

PagePopulator::PagePopulator(std::vector<std::span<std::byte>> parts, uint64_t stock)
    : parts_(std::move(parts)), stock_(stock), thread_([this] { Main(); }) {}

PagePopulator::~PagePopulator() {
  stop_.store(true, std::memory_order_release);
  bell_.Ring();
  thread_.join();
}

void PagePopulator::Use(uint64_t bytes) {
  uint64_t most = used_.load(std::memory_order_relaxed);
  while (bytes > most && !used_.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {
  }
  if (bytes > most) bell_.Ring();
}

void PagePopulator::SetBusy(bool busy) {
  const uint64_t turns = turns_.load(std::memory_order_relaxed);
  if ((turns % 2 == 1) != busy) turns_.store(turns + 1, std::memory_order_relaxed);
}

// Waits a while, longer while something is computed; true when nothing was.
bool PagePopulator::Quiet() {
  const uint64_t before = turns_.load(std::memory_order_relaxed);
  const bool busy = before % 2 == 1;
  bell_.Wait(busy ? 10 * kRest : kRest);
  return !busy && turns_.load(std::memory_order_relaxed) == before;
}

void PagePopulator::Main() {
  uint64_t all = 0;
  uint64_t quiet_since = 0;  // the turn since which nothing is computed
  for (const std::span<std::byte>& part : parts_) all = std::max<uint64_t>(all, part.size());
  for (uint64_t at = 0; at < all && !stop_.load(std::memory_order_acquire);) {
    // What is in use has been touched.
    at = std::max(at, used_.load(std::memory_order_relaxed) / kPieceBytes * kPieceBytes);
    if (at >= used_.load(std::memory_order_relaxed) + stock_) {
      bell_.Wait(-1);
      continue;
    }
    const uint64_t before = turns_.load(std::memory_order_relaxed);
    if (before != quiet_since && !Quiet()) continue;
    quiet_since = before;
    for (const std::span<std::byte>& part : parts_) {
      if (at >= part.size()) continue;
      if (madvise(part.data() + at, std::min(kPieceBytes, part.size() - at), kMadvPopulateWrite) != 0) return;
    }
    at += kPieceBytes;
    ready_.store(at, std::memory_order_release);
  }
}

}  // namespace headrace
