// What is remembered of blocks that were evicted: name, age and how often they were wanted, four for each block of the
// pool. Without them a small pool never sees the reuses that it misses, and learns nothing from them. Sets of eight;
// the oldest of a set goes. One thread; sized once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "kv_cache/block_name.h"

namespace headrace {

struct EvictedBlock {
  uint64_t tag = 0;  // low half of the name; 0: none
  uint32_t last = 0;
  uint32_t hits = 0;
};

class EvictedBlocks {
 public:
  static constexpr int kPerBlock = 4;
  static constexpr int kPerSet = 8;

  explicit EvictedBlocks(int32_t blocks)
      : sets_(static_cast<uint64_t>((int64_t{blocks} * kPerBlock + kPerSet - 1) / kPerSet)), slots_(sets_ * kPerSet) {}

  void Put(const BlockName& name, uint32_t last, uint32_t hits, uint32_t now) {
    EvictedBlock* const set = SetOf(name);
    EvictedBlock* const oldest = std::max_element(set, set + kPerSet, [now](const auto& a, const auto& b) {
      const auto age = [now](const EvictedBlock& e) { return e.tag == 0 ? UINT32_MAX : now - e.last; };
      return age(a) < age(b);
    });
    *oldest = {name.low | 1, last, hits};
  }
  // Takes it out.
  std::optional<EvictedBlock> Take(const BlockName& name) {
    EvictedBlock* const set = SetOf(name);
    EvictedBlock* const found =
        std::find_if(set, set + kPerSet, [&](const auto& e) { return e.tag == (name.low | 1); });
    if (found == set + kPerSet) return std::nullopt;
    const EvictedBlock taken = *found;
    *found = {};
    return taken;
  }
  const std::vector<EvictedBlock>& slots() const { return slots_; }

 private:
  EvictedBlock* SetOf(const BlockName& name) { return slots_.data() + ((name.high >> 32) * sets_ >> 32) * kPerSet; }

  const uint64_t sets_;
  std::vector<EvictedBlock> slots_;
};

}  // namespace headrace
