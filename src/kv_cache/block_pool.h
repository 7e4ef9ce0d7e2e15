// The KV pool as ids: blocks of 64 tokens, handed out and taken back, and shared where sequences begin alike. Knows no
// tensors; both wings and the simulator use it. One thread (the engine's). Invariants, checked by CheckPoolIntegrity():
// a block is free, or held by as many tables as its reference count says, or held by none and idle in the prefix index;
// free + used + idle = all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kv_cache/block_chain.h"
#include "kv_cache/prefix_index.h"

namespace headrace {

class BlockPool {
 public:
  // REQUIRES: blocks >= 1. Without `prefix_cache` nothing is ever named or shared.
  explicit BlockPool(int32_t blocks, bool prefix_cache = false);

  int32_t blocks() const { return static_cast<int32_t>(references_.size()); }
  // Blocks that can be had at once: free, or cached and not in use.
  int32_t available_blocks() const { return static_cast<int32_t>(free_.size()) + (index_ ? index_->idle_blocks() : 0); }
  int32_t used_blocks() const { return blocks() - available_blocks(); }
  int32_t cached_blocks() const { return index_ ? index_->named_blocks() : 0; }  // in use or idle
  uint64_t evictions() const { return index_ ? index_->evictions() : 0; }
  int32_t pinned_blocks() const { return index_ ? index_->pinned_blocks() : 0; }
  uint64_t pins_refused() const { return index_ ? index_->pins_refused() : 0; }
  void ExpirePins(TimeNs now) {
    if (index_) index_->ExpirePins(now);
  }
  // Tells `notes` from now on what is evicted and published; it outlives the pool or the next call. Null: nobody.
  void SetNotes(BlockNotes* notes) { notes_ = notes; }
  double Usage() const { return static_cast<double>(used_blocks()) / blocks(); }

  // How many blocks of `chain`, from the first on and at most blocks_max, are cached; of these, how many are in use and
  // so cost nothing to share.
  struct Match {
    int64_t blocks = 0, in_use = 0;
  };
  Match Peek(const BlockChain& chain, int64_t blocks_max) const;

 private:
  friend class BlockTable;
  friend void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const class BlockTable*>& tables);
  int32_t Take();
  void Share(int32_t block);
  void Give(int32_t block);
  int32_t Evict();
  void NotePublished(int32_t block, const BlockChain& chain, int64_t depth);

  std::vector<int32_t> free_;  // a stack: the block given last is warm in cache
  std::vector<int32_t> references_;
  std::optional<PrefixIndex> index_;
  BlockNotes* notes_ = nullptr;
};

// The blocks of one sequence, in order of position. Gives its blocks back when destroyed.
class BlockTable {
 public:
  // blocks_max bounds growth, so that growing never allocates.
  BlockTable(BlockPool& pool, int64_t blocks_max);
  ~BlockTable() { Clear(); }
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  const std::vector<int32_t>& blocks() const { return blocks_; }
  int64_t capacity_tokens() const { return size() * kBlockTokens; }
  // Blocks that are missing for `tokens` tokens.
  int64_t Missing(int64_t tokens) const;
  // Grows to hold `tokens` tokens. False, and unchanged, when the pool has too few.
  bool GrowTo(int64_t tokens);
  void Clear();

  // Appends the cached blocks that follow in `chain`, until it holds blocks_max. All that it holds must be published:
  // else nothing is appended. `again`: the sequence had computed them before, so they tell nothing about reuse.
  // Returns how many.
  int64_t Adopt(const BlockChain& chain, int64_t blocks_max, bool again);
  // The first full_blocks blocks are computed whole: names them, so that others can share them. Where another sequence
  // was faster, its block takes the place of ours: by the first law their bits are equal.
  void Publish(const BlockChain& chain, int64_t full_blocks);
  // Keeps those of its first `blocks` that are published until then, each once while the table holds it.
  void Pin(const BlockChain& chain, int64_t blocks, TimeNs until);

 private:
  friend void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const BlockTable*>& tables);
  int64_t size() const { return static_cast<int64_t>(blocks_.size()); }
  int32_t parent_of(int64_t block) const { return block == 0 ? -1 : blocks_[static_cast<size_t>(block - 1)]; }

  BlockPool& pool_;
  std::vector<int32_t> blocks_;
  int64_t published_ = 0;  // of blocks_, from the first on
  int64_t pinned_ = 0;     // likewise: those that a pin was asked for
};

// Every invariant of pool, index and tables; a CHECK otherwise. `tables` are all that there are.
void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const BlockTable*>& tables);

}  // namespace headrace
