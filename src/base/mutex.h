// An annotated mutex: clang's -Wthread-safety checks that members marked GUARDED_BY are touched only under it.
#pragma once

#include <condition_variable>
#include <mutex>

#define HR_CAPABILITY(x) __attribute__((capability(x)))
#define HR_SCOPED_CAPABILITY __attribute__((scoped_lockable))
#define GUARDED_BY(x) __attribute__((guarded_by(x)))
#define REQUIRES_LOCK(...) __attribute__((requires_capability(__VA_ARGS__)))
#define EXCLUDES_LOCK(...) __attribute__((locks_excluded(__VA_ARGS__)))
#define HR_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define HR_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#define HR_NO_ANALYSIS __attribute__((no_thread_safety_analysis))

namespace headrace {

class HR_CAPABILITY("mutex") Mutex {
 public:
  void Lock() HR_ACQUIRE() { mutex_.lock(); }
  void Unlock() HR_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class HR_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) HR_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() HR_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Atomically unlocks, sleeps, locks again. Spurious wake-ups happen: loop over the condition.
  void Wait(Mutex& mutex) REQUIRES_LOCK(mutex) HR_NO_ANALYSIS {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace headrace
