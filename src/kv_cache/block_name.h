// Names of blocks: a keyed 128-bit hash over the parent's name and the 64 token ids. The first parent is a root that
// stands for everything else which decides the bits or who may see them: numerics fingerprint, adapter, namespace. So a
// name says all that a block's keys and values depend on, and whoever lacks the key cannot make two that collide.
//
// SipHash-2-4 with 128 bits: Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012, and its
// reference code for the longer output. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace headrace {

constexpr int kBlockTokens = 64;  // one attention page

// Blocks that `tokens` tokens take.
constexpr int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

using BlockIds = std::span<const int32_t, kBlockTokens>;

struct BlockName {
  uint64_t low = 0, high = 0;
  bool operator==(const BlockName&) const = default;
};

// Secret of a deployment; without a cache that outlives the process, drawn at its start.
struct BlockKey {
  uint64_t low = 0, high = 0;
};

BlockName SipHash128(const BlockKey& key, std::span<const std::byte> bytes);

// The parent of a sequence's first block.
BlockName RootName(const BlockKey& key, std::string_view fingerprint, std::string_view adapter,
                   std::string_view name_space);

BlockName NameOfBlock(const BlockKey& key, const BlockName& parent, BlockIds ids);

}  // namespace headrace
