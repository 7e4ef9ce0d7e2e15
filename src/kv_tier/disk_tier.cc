#include "kv_tier/disk_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace headrace {
namespace {

// Of the newest measurement in the mean.
constexpr double kNewest = 0.1;

uint64_t BuffersFor(uint64_t bytes_max, uint64_t block_bytes) {
  return std::clamp(bytes_max / block_bytes, DiskTier::kBuffersMin, DiskTier::kBuffersMax);
}

}  // namespace

Result<std::unique_ptr<DiskTier>> DiskTier::Make(std::unique_ptr<BlockFolder> folder, const Clock& clock) {
  const uint64_t block_bytes = folder->payload_bytes();
  const uint64_t writes = BuffersFor(kWriteBytesMax, block_bytes), reads = BuffersFor(kReadBytesMax, block_bytes);
  HR_ASSIGN_OR_RETURN(HugeBuffer buffer,
                      HugeBuffer::Allocate((writes + reads) * block_bytes, "blocks on their way to --cache-dir"));
  return std::unique_ptr<DiskTier>(new DiskTier(std::move(folder), std::move(buffer), static_cast<int32_t>(writes),
                                                static_cast<int32_t>(reads), clock));
}

DiskTier::DiskTier(std::unique_ptr<BlockFolder> folder, HugeBuffer buffer, int32_t writes, int32_t reads,
                   const Clock& clock)
    : clock_(clock),
      folder_(std::move(folder)),
      buffer_(std::move(buffer)),
      read_buffers_(reads),
      index_(folder_->places()) {
  const uint64_t block_bytes = folder_->payload_bytes();
  free_writes_.reserve(static_cast<size_t>(writes));
  free_reads_.reserve(static_cast<size_t>(reads));
  for (int32_t i = 0; i < writes + reads; ++i) {
    buffers_.emplace_back(buffer_.data() + static_cast<uint64_t>(i) * block_bytes, block_bytes);
    (i < writes ? free_writes_ : free_reads_).push_back(i);
  }
  done_.reserve(buffers_.size());
  reads_.reserve(buffers_.size());
  for (const BlockName& name : folder_->found()) index_.SetReady(index_.Insert(name, nullptr));
  stats_.blocks.store(index_.used(), std::memory_order_relaxed);
}

void DiskTier::Start(Doorbell* bell, TimeNs virtual_took) {
  if (virtual_took >= 0) {
    io_ = std::make_unique<VirtualTierIo>(*folder_, buffers_, clock_, virtual_took);
  } else {
    io_ = std::make_unique<ThreadedTierIo>(*folder_, buffers_, clock_, bell);
  }
}

bool DiskTier::Has(const BlockName& name, TimeNs now) const {
  const int32_t place = index_.Find(name);
  return place >= 0 && index_.ready(place) && io_ != nullptr && now >= reads_from_;
}

std::span<std::byte> DiskTier::BeginWrite(const NamedBlock& block, const BlockName* parent, int32_t depth, TimeNs now) {
  if (index_.Find(block.name) >= 0) return {};
  write_.given_up.reset();
  const bool room = io_ != nullptr && !free_writes_.empty() && now >= writes_from_;
  const int32_t least = room && index_.full() ? index_.LeastWanted(now) : -1;
  if (!room || (index_.full() && least < 0)) {
    TierStats::Count(stats_.dropped);
    return {};
  }
  if (least >= 0) {
    write_.given_up = index_.name(least);
    index_.Remove(least);
  }
  write_.write = true;
  write_.block = block;
  write_.wanted_ns = WantedNs(depth);
  write_.ticket = index_.generation(index_.Insert(block.name, parent));
  write_.buffer = free_writes_.back();
  free_writes_.pop_back();
  return buffers_[static_cast<size_t>(write_.buffer)];
}

void DiskTier::SubmitWrite() { io_->Submit(write_); }

bool DiskTier::StartRead(const NamedBlock& wanted, int32_t depth, uint64_t ticket) {
  if (free_reads_.empty()) return false;
  io_->Submit({.buffer = free_reads_.back(), .ticket = ticket, .wanted_ns = WantedNs(depth), .block = wanted});
  free_reads_.pop_back();
  return true;
}

void DiskTier::Drain(TimeNs now) {
  if (io_ == nullptr) return;
  done_.clear();
  io_->Drain(now, &done_);
  if (done_.empty()) return;
  for (const TierDone& done : done_) done.write ? EndWrite(done, now) : EndRead(done, now);
  stats_.blocks.store(index_.used(), std::memory_order_relaxed);
}

void DiskTier::EndWrite(const TierDone& done, TimeNs now) {
  free_writes_.push_back(done.buffer);
  const int32_t place = index_.Find(done.name);
  const bool held = place >= 0 && index_.generation(place) == done.ticket;  // else given up meanwhile
  if (done.ok) {
    if (held) index_.SetReady(place);
    TierStats::Count(stats_.spilled);
    return;
  }
  if (held) index_.Remove(place);
  TierStats::Count(stats_.failed);
  writes_from_ = now + kPause;
  SayOnce(done);
}

void DiskTier::EndRead(const TierDone& done, TimeNs now) {
  reads_.push_back({done.ticket, done.buffer, done.ok, buffers_[static_cast<size_t>(done.buffer)]});
  if (done.ok) {
    const auto took = static_cast<double>(done.took);
    ns_per_read_ = ns_per_read_ == 0 ? took : ns_per_read_ + kNewest * (took - ns_per_read_);
    return;
  }
  Forget(done.name);
  if (done.error == ErrorCode::kCorruptData) {
    TierStats::Count(stats_.damaged);
  } else {
    TierStats::Count(stats_.failed);
    if (done.error != ErrorCode::kNotFound) reads_from_ = now + kPause;
  }
  SayOnce(done);
}

void DiskTier::Forget(const BlockName& name) {
  if (const int32_t place = index_.Find(name); place >= 0 && index_.ready(place)) index_.Remove(place);
}

void DiskTier::SayOnce(const TierDone& done) {
  if (std::exchange(said_, true)) return;
  LOG_WARN(
      "the cache folder did not {} a block ({}): it is computed instead. Said once; headrace_prefix_cache_tier_... "
      "counts further ones",
      done.write ? "take" : "give back", done.why);
}

void DiskTier::Touch(const BlockName& name) {
  if (const int32_t place = index_.Find(name); place >= 0) index_.Touch(place);
}

void DiskTier::Pin(const BlockName& name, TimeNs until, TimeNs now) {
  if (const int32_t place = index_.Find(name); place >= 0) index_.Pin(place, until, now);
  stats_.pinned.store(index_.pinned(), std::memory_order_relaxed);
}

void DiskTier::EndPins(TimeNs now) {
  index_.EndPins(now);
  stats_.pinned.store(index_.pinned(), std::memory_order_relaxed);
}

// A second earlier for each block before it: the next start takes a child as older than its parent, and gives it up
// before it.
int64_t DiskTier::WantedNs(int32_t depth) {
  return std::max<int64_t>(0, clock_.UnixSeconds() - depth) * kNsPerSecond + ++stamps_ % kNsPerSecond;
}

}  // namespace headrace
