// The scheduler's side of a second tier below the KV pool: who admits a sequence asks how much of its prompt is to be
// restored from there, gives it blocks for that, and plans no rows for it until it is told that they are filled.
#pragma once

#include <cstdint>

#include "kv_cache/block_chain.h"

namespace headrace {

// Asked in Plan, on the scheduler's thread; allocates nothing.
class BlockRestorer {
 public:
  virtual ~BlockRestorer() = default;
  // How many of the blocks [first, end) of `chain`, from `first` on, are to be restored rather than computed.
  virtual int64_t BlocksToRestore(const BlockChain& chain, int64_t first, int64_t end) = 0;
};

// Blocks that a plan wants restored. Whoever was told so tells Scheduler::Restored in the end, unless the sequence is
// preempted or removed before.
struct PlannedRestore {
  int32_t slot = 0;
  const BlockChain* chain = nullptr;
  int64_t first = 0, end = 0;  // of the sequence's blocks
};

}  // namespace headrace
