// Which blocks of the pool hold which prefixes. A block is named when it has been computed whole; its parent is the
// block before it in the sequence, so the index is a forest. A named block is in use (some table holds it) or idle;
// idle leaves are what eviction takes, so a prefix never loses its middle.
//
// One thread (the engine's); sized once, allocates nothing afterwards. Invariants, checked by CheckIntegrity: each
// named block is found by its name and lies in its bucket once; a parent is named, and in use if its child is; the
// number of children is true; the leaves are exactly the idle blocks without children; only named blocks are pinned,
// and a parent as long as its child, so that no idle block that is not pinned stands before a pinned one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "kv_cache/block_name.h"
#include "kv_cache/evicted_blocks.h"
#include "kv_cache/named_block.h"
#include "kv_cache/pins.h"
#include "kv_cache/reuse_estimate.h"

namespace headrace {

class PrefixIndex {
 public:
  explicit PrefixIndex(int32_t blocks);

  // The block of that name whose ids are equal and whose parent is `parent` (-1: it is a first block); -1: none.
  int32_t Find(int32_t parent, const BlockName& name, BlockIds ids) const;
  // Names a block in use. False, and nothing changes, when another one has the name (its ids differ, or Find had found
  // it: a collision, which nobody without the key can make).
  bool Publish(int32_t block, int32_t parent, const BlockName& name, BlockIds ids);
  // A request wanted this block.
  void CountHit(int32_t block);

  bool named(int32_t block) const { return at(block).state != State::kUnnamed; }
  bool idle(int32_t block) const { return at(block).state == State::kIdle; }
  // Nobody holds the named block any more / somebody holds it again.
  void BecomeIdle(int32_t block);
  void BecomeUsed(int32_t block);
  // Takes the idle leaf that is worth least out of the index; a pinned one only where all are, and then tells until
  // when it was. REQUIRES: idle_blocks() > 0.
  int32_t Evict(TimeNs* pinned_until);

  // Keeps a named block until then, in whole minutes and no longer than its parent, if it is not kept for longer, or as
  // many as may be are: nothing else is given up for it, and it is given up rather than refuse a block to a sequence.
  // False: it is not.
  bool Pin(int32_t block, TimeNs until);
  // Pins that end by `now`.
  void ExpirePins(TimeNs now);
  int32_t pinned_blocks() const { return pinned_blocks_; }
  int32_t pinned_blocks_max() const { return PinnedBlocksMax(static_cast<int32_t>(blocks_.size())); }
  uint64_t pins_refused() const { return pins_refused_; }
  // Name and ids of a block, also right after its eviction.
  void Describe(int32_t block, NamedBlock* named) const {
    named->name = at(block).name;
    named->ids = ids_[static_cast<size_t>(block)];
  }

  int32_t idle_blocks() const { return idle_blocks_; }
  int32_t named_blocks() const { return named_blocks_; }
  uint64_t evictions() const { return evictions_; }

  // By CHECK; `in_use` tells whether a table holds the block.
  void CheckIntegrity(const std::vector<int32_t>& references) const;

 private:
  enum class State : uint8_t { kUnnamed, kInUse, kIdle };
  struct Block {
    BlockName name;
    int32_t parent = -1;
    int32_t children = 0;
    int32_t next = -1;  // in its bucket
    int32_t leaf = -1;  // place in leaves_
    uint32_t last = 0;  // touch at which it was last in use
    uint16_t hits = 0;
    State state = State::kUnnamed;
  };
  struct Leaf {
    uint32_t block : 24;
    uint32_t reuse_class : 7;
    uint32_t pinned : 1;
    uint32_t last;
  };
  using Ids = std::array<int32_t, kBlockTokens>;

  Block& at(int32_t block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(int32_t block) const { return blocks_[static_cast<size_t>(block)]; }
  size_t BucketOf(const BlockName& name) const { return (name.low >> 32) * buckets_.size() >> 32; }
  void Touch(int32_t block);
  void Visit();
  void AddLeaf(int32_t block);
  void RemoveLeaf(int32_t block);
  int32_t LeastWorth();
  void SetPin(int32_t block, uint32_t minute);
  void Unpin(int32_t block);
  void Unlink(int32_t block);

  std::vector<Block> blocks_;
  std::vector<Ids> ids_;
  std::vector<int32_t> buckets_;  // first block of each; -1: none
  std::vector<Leaf> leaves_;
  int32_t pinned_leaves_ = 0;            // of these
  std::vector<uint32_t> pinned_minute_;  // of each block, up to its begin; 0: not pinned
  TimeNs next_expiry_ = kNever;          // no pin ends before
  EvictedBlocks evicted_;
  ReuseEstimate estimate_;
  uint32_t touches_ = 0;  // the clock of ages; wraps
  uint64_t draws_ = 0;
  int32_t idle_blocks_ = 0, named_blocks_ = 0;
  int32_t pinned_blocks_ = 0;
  uint64_t evictions_ = 0, pins_refused_ = 0;

 public:
  // Beside the ids, for each block of the pool; the pool's own are a reference count and a place in its free list.
  static constexpr size_t kMetadataBytes = sizeof(Block) + sizeof(int32_t) + sizeof(Leaf) + sizeof(uint32_t) +
                                           EvictedBlocks::kPerBlock * sizeof(EvictedBlock) + 2 * sizeof(int32_t);
  static_assert(kMetadataBytes <= 128 && sizeof(Ids) == 256);
};

}  // namespace headrace
