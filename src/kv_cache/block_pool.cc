#include "kv_cache/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

BlockPool::BlockPool(int32_t blocks) : owned_(static_cast<size_t>(blocks), false) {
  CHECK_GE(blocks, 1);
  free_.reserve(owned_.size());
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

int32_t BlockPool::Take() {
  const int32_t block = free_.back();
  free_.pop_back();
  CHECK(!owned_[static_cast<size_t>(block)]);
  owned_[static_cast<size_t>(block)] = true;
  return block;
}

void BlockPool::Give(int32_t block) {
  CHECK(owned_[static_cast<size_t>(block)]);
  owned_[static_cast<size_t>(block)] = false;
  free_.push_back(block);
}

BlockTable::BlockTable(BlockPool& pool, int64_t blocks_max) : pool_(pool) {
  blocks_.reserve(static_cast<size_t>(blocks_max));
}

int64_t BlockTable::Missing(int64_t tokens) const {
  return std::max<int64_t>(0, BlocksFor(tokens) - static_cast<int64_t>(blocks_.size()));
}

bool BlockTable::GrowTo(int64_t tokens) {
  int64_t missing = Missing(tokens);
  if (missing > pool_.free_blocks()) return false;
  CHECK_LE(blocks_.size() + static_cast<size_t>(missing), blocks_.capacity());
  for (; missing > 0; --missing) blocks_.push_back(pool_.Take());
  return true;
}

void BlockTable::Clear() {
  while (!blocks_.empty()) {
    pool_.Give(blocks_.back());
    blocks_.pop_back();
  }
}

void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const BlockTable*>& tables) {
  std::vector<int> owners(pool.owned_.size(), 0);
  for (const BlockTable* table : tables) {
    for (int32_t block : table->blocks()) ++owners[static_cast<size_t>(block)];
  }
  for (size_t block = 0; block < owners.size(); ++block) CHECK_EQ(owners[block], pool.owned_[block] ? 1 : 0);
  std::vector<bool> seen(owners.size(), false);
  for (int32_t block : pool.free_) {
    CHECK(!seen[static_cast<size_t>(block)]);
    CHECK(!pool.owned_[static_cast<size_t>(block)]);
    seen[static_cast<size_t>(block)] = true;
  }
  CHECK_EQ(static_cast<size_t>(pool.used_blocks()),
           static_cast<size_t>(std::count(pool.owned_.begin(), pool.owned_.end(), true)));
}

}  // namespace headrace
