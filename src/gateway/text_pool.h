// A few threads at lower priority for work on text: parsing bodies, rendering templates, tokenising. Bounded.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "base/mutex.h"

namespace headrace {

class TextPool {
 public:
  explicit TextPool(int threads, size_t queue_max = 4096);
  ~TextPool() { Stop(); }

  // Finishes what runs, drops what waits; nothing is taken after it. Before what the work borrows is destroyed.
  void Stop() EXCLUDES_LOCK(mutex_);

  // Any thread. False when the queue is full or the pool has stopped. Work throws nothing.
  bool Post(std::move_only_function<void()> work) EXCLUDES_LOCK(mutex_);

 private:
  void Main();
  const size_t queue_max_;
  Mutex mutex_;
  CondVar ready_;
  std::deque<std::move_only_function<void()>> queue_ GUARDED_BY(mutex_);
  bool stop_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace headrace
