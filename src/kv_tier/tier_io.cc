#include "kv_tier/tier_io.h"

#include <algorithm>

namespace headrace {
namespace {

TierDone CarryOut(BlockFolder& folder, const TierBuffers& buffers, const TierJob& job) {
  const std::span<std::byte> buffer = buffers[static_cast<size_t>(job.buffer)];
  if (job.given_up) folder.Remove(*job.given_up);
  const Status status =
      job.write ? folder.Write(job.block, buffer, job.wanted_ns) : folder.Read(job.block, buffer, job.wanted_ns);
  return {.write = job.write,
          .buffer = job.buffer,
          .ticket = job.ticket,
          .name = job.block.name,
          .ok = status.has_value(),
          .error = status ? ErrorCode::kIo : status.error().code,
          .why = status ? std::string() : status.error().message};
}

}  // namespace

ThreadedTierIo::ThreadedTierIo(BlockFolder& folder, const TierBuffers& buffers, const Clock& clock, Doorbell* bell)
    : folder_(folder), buffers_(buffers), clock_(clock), bell_(bell) {
  {
    MutexLock lock(mutex_);
    reads_.reserve(buffers.size());
    writes_.reserve(buffers.size());
    done_.reserve(buffers.size());
  }
  thread_ = std::thread([this] { Main(); });
}

ThreadedTierIo::~ThreadedTierIo() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

void ThreadedTierIo::Submit(const TierJob& job) {
  {
    MutexLock lock(mutex_);
    (job.write ? writes_ : reads_).push_back(job);
  }
  wake_.NotifyOne();
}

void ThreadedTierIo::Drain(TimeNs, std::vector<TierDone>* done) {
  if (!any_done_.load(std::memory_order_acquire)) return;
  MutexLock lock(mutex_);
  done->insert(done->end(), done_.begin(), done_.end());
  done_.clear();
  any_done_.store(false, std::memory_order_release);
}

void ThreadedTierIo::Main() {
  while (true) {
    TierJob job;
    {
      MutexLock lock(mutex_);
      while (reads_.empty() && writes_.empty() && !stop_) wake_.Wait(mutex_);
      if (stop_) reads_.clear();
      std::vector<TierJob>& jobs = reads_.empty() ? writes_ : reads_;
      if (jobs.empty()) return;
      job = jobs.front();
      jobs.erase(jobs.begin());
    }
    const TimeNs begin = clock_.Now();
    TierDone done = CarryOut(folder_, buffers_, job);
    done.took = clock_.Now() - begin;
    {
      MutexLock lock(mutex_);
      done_.push_back(done);
      any_done_.store(true, std::memory_order_release);
    }
    if (bell_ != nullptr) bell_->Ring();
  }
}

void VirtualTierIo::Submit(const TierJob& job) {
  free_at_ = std::max(free_at_, clock_.Now()) + took_;
  TierDone done = CarryOut(folder_, buffers_, job);
  done.took = took_;
  pending_.push_back({free_at_, done});
}

void VirtualTierIo::Drain(TimeNs now, std::vector<TierDone>* done) {
  size_t due = 0;
  for (; due < pending_.size() && pending_[due].at <= now; ++due) done->push_back(pending_[due].done);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(due));
}

}  // namespace headrace
