#include "kv_tier/memory_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace {
Result<std::unique_ptr<MemoryTier>> MemoryTier::Make(uint64_t bytes, uint64_t block_bytes) {
  const uint64_t places = std::min(bytes / block_bytes, kBlocksMax);
  if (places == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--cache-memory is smaller than one block of this model, {} bytes", block_bytes),
                "cache-memory");
  HR_ASSIGN_OR_RETURN(HugeBuffer buffer, HugeBuffer::Allocate(places * block_bytes, "--cache-memory"));
  return std::unique_ptr<MemoryTier>(new MemoryTier(std::move(buffer), static_cast<int32_t>(places), block_bytes));
}

MemoryTier::MemoryTier(HugeBuffer buffer, int32_t places, uint64_t block_bytes)
    : buffer_(std::move(buffer)),
      block_bytes_(block_bytes),
      index_(places),
      blocks_(static_cast<size_t>(places)),
      populator_({{buffer_.data(), buffer_.bytes()}}, buffer_.bytes()) {}

std::span<const std::byte> MemoryTier::Get(const NamedBlock& wanted) const {
  const int32_t place = index_.Find(wanted.name);
  if (place < 0 || blocks_[static_cast<size_t>(place)] != wanted) return {};
  return BytesOf(place);
}

std::span<std::byte> MemoryTier::Put(const NamedBlock& block, TimeNs now) {
  if (const int32_t place = index_.Find(block.name); place >= 0) {
    index_.Touch(place);
    return {};
  }
  if (index_.full()) {
    const int32_t least = index_.LeastWanted(now);
    if (least < 0) {
      TierStats::Count(stats_.dropped);
      return {};
    }
    index_.Remove(least);
  }
  // A child comes before its parent, since the pool gives up leaves: each to the front leaves the parent in front.
  const int32_t place = index_.Insert(block.name, nullptr);
  index_.SetReady(place);
  blocks_[static_cast<size_t>(place)] = block;
  TierStats::Count(stats_.spilled);
  stats_.blocks.store(index_.used(), std::memory_order_relaxed);
  return BytesOf(place);
}

void MemoryTier::Touch(const BlockName& name) {
  if (const int32_t place = index_.Find(name); place >= 0) index_.Touch(place);
}

void MemoryTier::Pin(const BlockName& name, TimeNs until, TimeNs now) {
  if (const int32_t place = index_.Find(name); place >= 0) index_.Pin(place, until, now);
  stats_.pinned.store(index_.pinned(), std::memory_order_relaxed);
}

void MemoryTier::EndPins(TimeNs now) {
  index_.EndPins(now);
  stats_.pinned.store(index_.pinned(), std::memory_order_relaxed);
}

}  // namespace headrace
