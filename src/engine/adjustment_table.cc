#include "engine/adjustment_table.h"

#include <bit>

#include "base/check.h"
#include "base/random.h"

namespace headrace {

AdjustmentTable::AdjustmentTable(size_t tokens_max) : slots_(std::bit_ceil(2 * tokens_max + 2), -1) {
  entries_.reserve(tokens_max);
}

TokenAdjustment& AdjustmentTable::At(int32_t token) {
  const size_t mask = slots_.size() - 1;
  size_t i = SplitMix64(static_cast<uint64_t>(token)) & mask;
  for (; slots_[i] >= 0; i = (i + 1) & mask) {
    TokenAdjustment& entry = entries_[static_cast<size_t>(slots_[i])];
    if (entry.token == token) return entry;
  }
  CHECK_LT(entries_.size(), entries_.capacity());
  slots_[i] = static_cast<int32_t>(entries_.size());
  entries_.push_back({token, 0.0f, 0, false});
  return entries_.back();
}

int32_t AdjustmentTable::Find(int32_t token) const {
  const size_t mask = slots_.size() - 1;
  if (slots_.empty()) return -1;
  for (size_t i = SplitMix64(static_cast<uint64_t>(token)) & mask; slots_[i] >= 0; i = (i + 1) & mask)
    if (entries_[static_cast<size_t>(slots_[i])].token == token) return slots_[i];
  return -1;
}

}  // namespace headrace
