// The names of one sequence's full blocks, over token ids that somebody else owns and that only grow. Made with the
// request, on the thread that brings it, so that naming a long prompt costs the engine nothing; then one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_cache/named_block.h"

namespace headrace {

// Another way to name a block, for logs whose names are decided again.
using BlockNaming = BlockName (*)(BlockIds ids);

class BlockChain {
 public:
  // Names the full blocks of `tokens`, which outlives the chain and holds `tokens_max` tokens at the end: naming more
  // never allocates.
  BlockChain(const BlockKey& key, const BlockName& root, const std::vector<int32_t>& tokens, int64_t tokens_max,
             BlockNaming naming = nullptr)
      : key_(key), root_(root), tokens_(tokens), naming_(naming) {
    names_.reserve(static_cast<size_t>(tokens_max / kBlockTokens));
    NameNew();
  }

  // Names the blocks that have become full since.
  void NameNew() {
    while ((names_.size() + 1) * kBlockTokens <= tokens_.size()) {
      const auto block = static_cast<int64_t>(names_.size());
      const BlockName& parent = names_.empty() ? root_ : names_.back();
      names_.push_back(naming_ != nullptr ? naming_(ids(block)) : NameOfBlock(key_, parent, ids(block)));
    }
  }
  int64_t blocks() const { return static_cast<int64_t>(names_.size()); }
  const BlockName& name(int64_t block) const { return names_[static_cast<size_t>(block)]; }
  // The root's for the first block.
  const BlockName& parent(int64_t block) const { return block == 0 ? root_ : name(block - 1); }
  NamedBlock named(int64_t block) const {
    NamedBlock named{.name = name(block)};
    named.SetIds(ids(block));
    return named;
  }
  BlockIds ids(int64_t block) const { return BlockIds(tokens_.data() + block * kBlockTokens, kBlockTokens); }

 private:
  const BlockKey key_;
  const BlockName root_;
  const std::vector<int32_t>& tokens_;
  const BlockNaming naming_;
  std::vector<BlockName> names_;
};

}  // namespace headrace
