// The adjustments of one sequence: what is known of single tokens (bias, occurrences). Sized once; never allocates
// after.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampler.h"

namespace headrace {

class AdjustmentTable {
 public:
  AdjustmentTable() = default;
  // Holds up to `tokens_max` different tokens.
  explicit AdjustmentTable(size_t tokens_max);

  TokenAdjustment& At(int32_t token);
  // Where `token` stands in entries(); -1: nowhere.
  int32_t Find(int32_t token) const;
  std::span<const TokenAdjustment> entries() const { return entries_; }

 private:
  std::vector<TokenAdjustment> entries_;
  std::vector<int32_t> slots_;  // open addressing, index into entries_ or -1
};

}  // namespace headrace
