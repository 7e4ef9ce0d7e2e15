// Reading and writing of blocks beside the engine: jobs go in, what became of them comes out, and the thread that asks
// never waits. Bytes lie in buffers that the asking thread owns until it submits a job with one, and again once it has
// drained the job; so there are never more jobs than buffers, and nothing can overflow.
//
// Submit and Drain by one thread. Reads go before writes; each kind in the order of submission. No read is submitted
// for a name whose write is not drained, nor one for a name that has been given up.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/mutex.h"
#include "kv_tier/block_folder.h"

namespace headrace {

struct TierJob {
  bool write = false;
  int32_t buffer = -1;
  uint64_t ticket = 0;    // comes back
  int64_t wanted_ns = 0;  // see BlockFolder
  NamedBlock block;
  std::optional<BlockName> given_up;  // of a write: removed first
};

struct TierDone {
  bool write = false;
  int32_t buffer = -1;
  uint64_t ticket = 0;
  BlockName name;
  bool ok = false;
  ErrorCode error = ErrorCode::kIo;  // unless ok
  std::string why;                   // likewise
  TimeNs took = 0;
};

// One buffer's bytes.
using TierBuffers = std::vector<std::span<std::byte>>;

class TierIo {
 public:
  virtual ~TierIo() = default;
  virtual void Submit(const TierJob& job) = 0;
  // Appends what is done to `done`, whose capacity is as many as there are buffers.
  virtual void Drain(TimeNs now, std::vector<TierDone>* done) = 0;
  // When something will be done, if that is known; kNever: the bell tells.
  virtual TimeNs NextDone() const { return kNever; }
};

// On a thread of its own, which rings `bell` (may be null). Ends when destroyed, with the writes that it was given.
class ThreadedTierIo final : public TierIo {
 public:
  // Borrows folder, buffers, clock and bell.
  ThreadedTierIo(BlockFolder& folder, const TierBuffers& buffers, const Clock& clock, Doorbell* bell);
  ~ThreadedTierIo() override;
  void Submit(const TierJob& job) override EXCLUDES_LOCK(mutex_);
  void Drain(TimeNs now, std::vector<TierDone>* done) override EXCLUDES_LOCK(mutex_);

 private:
  void Main() EXCLUDES_LOCK(mutex_);

  BlockFolder& folder_;
  const TierBuffers& buffers_;
  const Clock& clock_;
  Doorbell* const bell_;
  Mutex mutex_;
  CondVar wake_;
  std::vector<TierJob> reads_ GUARDED_BY(mutex_), writes_ GUARDED_BY(mutex_);  // the oldest first
  std::vector<TierDone> done_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> any_done_{false};
  std::thread thread_;
};

// On virtual time: a job is carried out when it is submitted and done `took` later than the one before it.
class VirtualTierIo final : public TierIo {
 public:
  VirtualTierIo(BlockFolder& folder, const TierBuffers& buffers, const Clock& clock, TimeNs took)
      : folder_(folder), buffers_(buffers), clock_(clock), took_(took) {}
  void Submit(const TierJob& job) override;
  void Drain(TimeNs now, std::vector<TierDone>* done) override;
  TimeNs NextDone() const override { return pending_.empty() ? kNever : pending_.front().at; }

 private:
  struct Pending {
    TimeNs at;
    TierDone done;
  };
  BlockFolder& folder_;
  const TierBuffers& buffers_;
  const Clock& clock_;
  const TimeNs took_;
  TimeNs free_at_ = 0;
  std::vector<Pending> pending_;
};

}  // namespace headrace
