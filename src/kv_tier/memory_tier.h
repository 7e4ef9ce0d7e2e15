// Blocks in host memory, for those that the pool gives up. One thread (the engine's); sized once. The system is asked
// for the memory from a thread beside, since to be given it block by block, when a block is copied there for the first
// time, takes ten times as long as the copy (128 MiB: 125 ms, asked for at once 28 ms, copied again 14 ms).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/page_populator.h"
#include "base/result.h"
#include "kv_cache/named_block.h"
#include "kv_cache/tier_index.h"
#include "kv_tier/tier_stats.h"

namespace headrace {

class MemoryTier {
 public:
  static constexpr uint64_t kBlocksMax = 1 << 20;

  // kInvalidArgument when not one block fits.
  static Result<std::unique_ptr<MemoryTier>> Make(uint64_t bytes, uint64_t block_bytes);

  bool Has(const BlockName& name) const { return index_.Find(name) >= 0; }
  // The bytes of a block, until the next Put; empty when it is not here.
  std::span<const std::byte> Get(const NamedBlock& wanted) const;
  // Where to copy the block to, which is held from now on; empty when it is here already or all places are pinned.
  std::span<std::byte> Put(const NamedBlock& block, TimeNs now);
  void Touch(const BlockName& name);
  // If it is here and not too many are pinned (kPinnedPercentMax).
  void Pin(const BlockName& name, TimeNs until, TimeNs now);
  // Ends the pins whose time is over.
  void EndPins(TimeNs now);

  uint64_t bytes() const { return buffer_.bytes(); }
  TierStats& stats() { return stats_; }
  const TierStats& stats() const { return stats_; }
  const TierIndex& index() const { return index_; }

 private:
  MemoryTier(HugeBuffer buffer, int32_t places, uint64_t block_bytes);
  std::span<std::byte> BytesOf(int32_t place) const {
    return {buffer_.data() + static_cast<uint64_t>(place) * block_bytes_, block_bytes_};
  }

  HugeBuffer buffer_;
  const uint64_t block_bytes_;
  TierIndex index_;
  std::vector<NamedBlock> blocks_;  // of each place
  TierStats stats_;
  PagePopulator populator_;
};

}  // namespace headrace
