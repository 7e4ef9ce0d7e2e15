#include "kv_cache/block_pool.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace headrace {

BlockPool::BlockPool(int32_t blocks, bool prefix_cache) : references_(static_cast<size_t>(blocks), 0) {
  CHECK_GE(blocks, 1);
  free_.reserve(references_.size());
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
  if (prefix_cache) index_.emplace(blocks);
}

BlockPool::Match BlockPool::Peek(const BlockChain& chain, int64_t blocks_max) const {
  Match match;
  if (!index_) return match;
  int32_t parent = -1;
  for (const int64_t end = std::min(blocks_max, chain.blocks()); match.blocks < end; ++match.blocks) {
    parent = index_->Find(parent, chain.name(match.blocks), chain.ids(match.blocks));
    if (parent < 0) break;
    if (!index_->idle(parent)) ++match.in_use;
  }
  return match;
}

int32_t BlockPool::Take() {
  int32_t block;
  if (free_.empty()) {
    block = Evict();
  } else {
    block = free_.back();
    free_.pop_back();
  }
  CHECK_EQ(references_[static_cast<size_t>(block)], 0);
  references_[static_cast<size_t>(block)] = 1;
  return block;
}

int32_t BlockPool::Evict() {
  TimeNs pinned_until = 0;
  const int32_t block = index_->Evict(&pinned_until);
  BlockNote* const note = notes_ == nullptr ? nullptr : notes_->Add(notes_->evicted);
  if (note != nullptr) {
    note->block = block;
    index_->Describe(block, &note->named);
    note->pinned_until = pinned_until;
  }
  return block;
}

void BlockPool::NotePublished(int32_t block, const BlockChain& chain, int64_t depth) {
  BlockNote* const note = notes_ == nullptr ? nullptr : notes_->Add(notes_->published);
  if (note != nullptr) *note = {block, static_cast<int32_t>(depth), chain.parent(depth), chain.named(depth)};
}

void BlockPool::Share(int32_t block) {
  if (references_[static_cast<size_t>(block)]++ == 0 && !HEADRACE_PLANTED(2)) index_->BecomeUsed(block);
}

void BlockPool::Give(int32_t block) {
  CHECK_GT(references_[static_cast<size_t>(block)], 0);
  if (--references_[static_cast<size_t>(block)] > 0) return;
  if (index_ && index_->named(block)) return index_->BecomeIdle(block);
  if (!HEADRACE_PLANTED(1)) free_.push_back(block);
}

BlockTable::BlockTable(BlockPool& pool, int64_t blocks_max) : pool_(pool) {
  blocks_.reserve(static_cast<size_t>(blocks_max));
}

int64_t BlockTable::Missing(int64_t tokens) const {
  return std::max<int64_t>(0, (HEADRACE_PLANTED(4) ? tokens / kBlockTokens : BlocksFor(tokens)) - size());
}

bool BlockTable::GrowTo(int64_t tokens) {
  int64_t missing = Missing(tokens);
  if (missing > pool_.available_blocks() + (HEADRACE_PLANTED(3) ? 1 : 0)) return false;
  CHECK_LE(blocks_.size() + static_cast<size_t>(missing), blocks_.capacity());
  for (; missing > 0; --missing) blocks_.push_back(pool_.Take());
  return true;
}

void BlockTable::Clear() {
  // From the end: a child is idle before its parent.
  for (; !blocks_.empty(); blocks_.pop_back()) pool_.Give(blocks_.back());
  published_ = pinned_ = 0;
}

void BlockTable::Pin(const BlockChain& chain, int64_t blocks, TimeNs until) {
  if (!pool_.index_) return;
  for (const int64_t end = std::min(blocks, published_); pinned_ < end; ++pinned_) {
    if (!pool_.index_->Pin(blocks_[static_cast<size_t>(pinned_)], until)) continue;
    BlockPin* const pin = pool_.notes_ == nullptr ? nullptr : pool_.notes_->Add(pool_.notes_->pinned);
    if (pin != nullptr) *pin = {chain.name(pinned_), until};
  }
}

int64_t BlockTable::Adopt(const BlockChain& chain, int64_t blocks_max, bool again) {
  if (!pool_.index_ || published_ != size()) return 0;
  const int64_t before = size();
  for (const int64_t end = std::min(blocks_max + (HEADRACE_PLANTED(5) ? 1 : 0), chain.blocks()); size() < end;
       ++published_) {
    const int32_t block = pool_.index_->Find(parent_of(size()), chain.name(size()), chain.ids(size()));
    if (block < 0) break;
    pool_.Share(block);
    if (!again) pool_.index_->CountHit(block);
    blocks_.push_back(block);
  }
  return size() - before;
}

void BlockTable::Publish(const BlockChain& chain, int64_t full_blocks) {
  if (!pool_.index_) return;
  CHECK_LE(full_blocks, size());
  CHECK_LE(full_blocks, chain.blocks());
  for (; published_ < full_blocks; ++published_) {
    int32_t& block = blocks_[static_cast<size_t>(published_)];
    const int32_t parent = parent_of(published_);
    const int32_t other = pool_.index_->Find(parent, chain.name(published_), chain.ids(published_));
    if (other >= 0) {
      pool_.Share(other);
      pool_.index_->CountHit(other);
      if (!HEADRACE_PLANTED(6)) pool_.Give(block);
      block = other;
    } else if (!pool_.index_->Publish(block, parent, chain.name(published_), chain.ids(published_))) {
      return;  // a collision: from here on this sequence keeps its blocks for itself
    } else {
      pool_.NotePublished(block, chain, published_);
    }
  }
}

void CheckPoolIntegrity(const BlockPool& pool, const std::vector<const BlockTable*>& tables) {
  std::vector<int32_t> holders(pool.references_.size(), 0);
  for (const BlockTable* table : tables) {
    for (int32_t block : table->blocks()) ++holders[static_cast<size_t>(block)];
    CHECK_LE(table->published_, table->size());
    for (int64_t i = 0; i < table->size(); ++i) {
      const bool named = pool.index_ && pool.index_->named(table->blocks()[static_cast<size_t>(i)]);
      CHECK_EQ(named, i < table->published_);
    }
  }
  for (size_t block = 0; block < holders.size(); ++block) CHECK_EQ(holders[block], pool.references_[block]);
  std::vector<bool> seen(holders.size(), false);
  for (int32_t block : pool.free_) {
    CHECK(!seen[static_cast<size_t>(block)]);
    CHECK_EQ(pool.references_[static_cast<size_t>(block)], 0);
    CHECK(!pool.index_ || !pool.index_->named(block));
    seen[static_cast<size_t>(block)] = true;
  }
  CHECK_EQ(pool.used_blocks(), std::ranges::count_if(holders, [](int32_t n) { return n > 0; }));
  if (pool.index_) pool.index_->CheckIntegrity(pool.references_);
}

}  // namespace headrace
