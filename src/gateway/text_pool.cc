#include "gateway/text_pool.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headrace {
namespace {

// Below the compute threads and the event loop, so that a burst of long prompts does not slow running answers.
constexpr int kNiceness = 5;

}  // namespace

TextPool::TextPool(int threads, size_t queue_max) : queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Main(); });
}

void TextPool::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  ready_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  std::deque<std::move_only_function<void()>> dropped;  // destroyed without the lock
  MutexLock lock(mutex_);
  dropped.swap(queue_);
}

bool TextPool::Post(std::move_only_function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (stop_ || queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(work));
  }
  ready_.NotifyOne();
  return true;
}

void TextPool::Main() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNiceness);
  for (;;) {
    std::move_only_function<void()> work;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !stop_) ready_.Wait(mutex_);
      if (stop_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace headrace
