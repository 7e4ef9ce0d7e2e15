// Moves blocks between the KV pool and the tiers below it: what the pool evicts goes to host memory, what it publishes
// to disk, and what a prompt has there and not in the pool comes back, where that is faster than computing it. Copies
// between pool and buffers are made here, between steps, a bounded number of bytes at a time; the disk is waited for by
// nobody. Whatever fails, the sequence computes what it lacks.
//
// One thread (the engine's); allocates nothing after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "executor/executor.h"
#include "kv_tier/second_tier.h"
#include "scheduler/scheduler.h"

namespace headrace {

class BlockMover final : public BlockRestorer {
 public:
  // Into the pool between two steps: about 3 ms, so that streams go on.
  static constexpr uint64_t kCopyBytesMax = 16ull << 20;
  // Out of it, before a step; what one plan evicts beyond that is lost to the tiers.
  static constexpr uint64_t kSaveBytesMax = 64ull << 20;
  // A disk that does not answer in this time is not waited for.
  static constexpr TimeNs kRestoreMax = 10 * kNsPerSecond;

  // Borrows all. The tier's disk is started, and stopped by the destructor.
  BlockMover(SecondTier& tier, Executor& executor, Scheduler& scheduler, const Clock& clock, Doorbell& bell);
  ~BlockMover() override;

  // Before Plan: copies what was read into the pool, and asks for more. Changes nothing of the scheduler's.
  void BringIn(TimeNs now);
  // After that: tells the scheduler which restores have ended.
  void EndRestores(TimeNs now);
  // In Plan.
  int64_t BlocksToRestore(const BlockChain& chain, int64_t first, int64_t end) override;
  // Between Plan and the step: evicted blocks are saved before they are overwritten, planned restores start.
  void Follow(const BatchPlan& plan, TimeNs now);
  // After the step: blocks that it filled are written to disk.
  void WriteBehind(TimeNs now);
  // A sequence ends.
  void Forget(int32_t slot);
  // A step that computed prompts took so long.
  void CountStep(TimeNs took, int32_t rows);
  // When BringIn has something to do, if nothing else happens before; kNever: nothing is on its way.
  TimeNs NextWakeUp(TimeNs now) const;

 private:
  struct Restore {
    int32_t slot = -1;
    const BlockChain* chain = nullptr;
    uint32_t number = 0;                   // tells it from others of its slot
    int64_t first = 0, next = 0, end = 0;  // blocks: of the restore, to be asked for next, behind the last one
    int32_t reading = 0;
    TimeNs since = 0;
  };

  void CopyRead(const DiskTier::Read& read);
  // Asks for blocks, or copies them from memory. False: it has to wait.
  bool Continue(Restore& restore, TimeNs now);
  bool ContinueWith(Restore& restore, const NamedBlock& wanted, TimeNs now);
  void CopyIn(const Restore& restore, int64_t block, std::span<const std::byte> bytes);
  void Touch(const PlannedRestore& restore);
  void SaveEvicted(TimeNs now);
  void Save(const BlockNote& note, TimeNs now);
  void PinBelow(const BlockName& name, TimeNs until, TimeNs now);
  void EndPinsBelow(TimeNs now);
  bool Faster(int64_t memory_blocks, int64_t disk_blocks);
  int64_t Pending() const;

  SecondTier& tier_;
  Executor& executor_;
  Scheduler& scheduler_;
  const Clock& clock_;
  const uint64_t block_bytes_;
  BlockNotes notes_;
  std::vector<Restore> restores_;  // the oldest first
  uint32_t next_number_ = 1;
  uint64_t copied_bytes_ = 0;                // in the last BringIn
  bool begun_ = false;                       // restores since then
  double ns_per_row_ = 0, ns_per_copy_ = 0;  // measured; 0: not yet
};

}  // namespace headrace
