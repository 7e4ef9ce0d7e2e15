// The KV pool as ids: blocks of 64 tokens, handed out and taken back. Knows no tensors; both wings and the simulator
// use it. One thread (the engine's). Invariants, checked by CheckIntegrity(): a block is free or owned by exactly one
// table; free + owned = all.
#pragma once

#include <cstdint>
#include <vector>

namespace headrace {

constexpr int kBlockTokens = 64;  // one attention page

// Blocks that `tokens` tokens take.
constexpr int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

class BlockPool {
 public:
  // REQUIRES: blocks >= 1.
  explicit BlockPool(int32_t blocks);

  int32_t blocks() const { return static_cast<int32_t>(owned_.size()); }
  int32_t free_blocks() const { return static_cast<int32_t>(free_.size()); }
  int32_t used_blocks() const { return blocks() - free_blocks(); }
  double Usage() const { return static_cast<double>(used_blocks()) / blocks(); }

 private:
  friend class BlockTable;
  friend void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const class BlockTable*>& tables);
  int32_t Take();
  void Give(int32_t block);

  std::vector<int32_t> free_;  // a stack: the block given last is warm in cache
  std::vector<bool> owned_;
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
  int64_t capacity_tokens() const { return static_cast<int64_t>(blocks_.size()) * kBlockTokens; }
  // Blocks that are missing for `tokens` tokens.
  int64_t Missing(int64_t tokens) const;
  // Grows to hold `tokens` tokens. False, and unchanged, when the pool has too few.
  bool GrowTo(int64_t tokens);
  void Clear();

 private:
  BlockPool& pool_;
  std::vector<int32_t> blocks_;
};

// Every block is owned by exactly one of `tables` or free; a CHECK otherwise.
void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const BlockTable*>& tables);

}  // namespace headrace
