// Blocks on disk, seen from the engine's thread: which there are, what is on its way there and back. Nothing here waits
// for the disk: a block that finds no free buffer is not written, and what is read is drained later.
//
// One thread (the engine's) from Start to Stop.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "kv_cache/tier_index.h"
#include "kv_tier/block_folder.h"
#include "kv_tier/tier_io.h"
#include "kv_tier/tier_stats.h"

namespace headrace {

class DiskTier {
 public:
  // Memory for blocks under way, in bytes and in blocks.
  static constexpr uint64_t kWriteBytesMax = 64ull << 20;
  static constexpr uint64_t kReadBytesMax = 32ull << 20;
  static constexpr uint64_t kBuffersMin = 2;  // also where two blocks are more bytes than that
  static constexpr uint64_t kBuffersMax = 64;
  // After a failure the disk is left alone for so long.
  static constexpr TimeNs kPause = 60 * kNsPerSecond;

  // A block that was read. `bytes` may be used until EndRead(buffer).
  struct Read {
    uint64_t ticket = 0;
    int32_t buffer = -1;
    bool ok = false;
    std::span<const std::byte> bytes;
  };

  // The folder's blocks are here from the start. `clock` outlives the tier.
  static Result<std::unique_ptr<DiskTier>> Make(std::unique_ptr<BlockFolder> folder, const Clock& clock);
  // On a thread that rings `bell`, until Stop, which waits for what is being written. With virtual_took >= 0 on virtual
  // time instead.
  void Start(Doorbell* bell, TimeNs virtual_took = -1);
  void Stop() { io_.reset(); }

  // It can be read.
  bool Has(const BlockName& name, TimeNs now) const;
  // Where to copy a block to that is to be written, before SubmitWrite; empty when it is here already, or cannot be
  // written now (which is counted). `parent` as in TierIndex::Insert; depth: blocks before it.
  std::span<std::byte> BeginWrite(const NamedBlock& block, const BlockName* parent, int32_t depth, TimeNs now);
  void SubmitWrite();
  // False: no buffer is free. REQUIRES: Has(name).
  bool StartRead(const NamedBlock& wanted, int32_t depth, uint64_t ticket);
  // Takes in what the disk has done; reads() grows by what was read.
  void Drain(TimeNs now);
  std::vector<Read>& reads() { return reads_; }
  // Something was asked for and has not been given back by EndRead.
  bool reading() const { return std::ssize(free_reads_) < read_buffers_; }
  void EndRead(int32_t buffer) { free_reads_.push_back(buffer); }
  void Touch(const BlockName& name);
  // If it is here, or on its way, and not too many are pinned (kPinnedPercentMax). Forgotten with the process.
  void Pin(const BlockName& name, TimeNs until, TimeNs now);
  // Ends the pins whose time is over.
  void EndPins(TimeNs now);

  // Measured; 0: nothing was read yet.
  double ns_per_read() const { return ns_per_read_; }
  void set_ns_per_read(double ns) { ns_per_read_ = ns; }
  TimeNs NextDone() const { return io_ ? io_->NextDone() : kNever; }
  uint64_t buffer_bytes() const { return buffer_.bytes(); }
  const BlockFolder& folder() const { return *folder_; }
  const TierIndex& index() const { return index_; }
  TierStats& stats() { return stats_; }
  const TierStats& stats() const { return stats_; }

 private:
  DiskTier(std::unique_ptr<BlockFolder> folder, HugeBuffer buffer, int32_t writes, int32_t reads, const Clock& clock);
  void EndWrite(const TierDone& done, TimeNs now);
  void EndRead(const TierDone& done, TimeNs now);
  void Forget(const BlockName& name);
  void SayOnce(const TierDone& done);
  int64_t WantedNs(int32_t depth);

  const Clock& clock_;
  const std::unique_ptr<BlockFolder> folder_;
  HugeBuffer buffer_;
  TierBuffers buffers_;
  std::vector<int32_t> free_writes_, free_reads_;
  const int32_t read_buffers_;
  TierIndex index_;
  TierJob write_;  // between BeginWrite and SubmitWrite
  std::vector<TierDone> done_;
  std::vector<Read> reads_;
  TimeNs writes_from_ = 0, reads_from_ = 0;  // paused until then
  double ns_per_read_ = 0;
  int64_t stamps_ = 0;
  bool said_ = false;
  TierStats stats_;
  std::unique_ptr<TierIo> io_;  // last: it uses buffers and folder
};

}  // namespace headrace
