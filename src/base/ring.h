// Bounded queues between threads.
// SpscRing: one producer, one consumer, fixed capacity, no allocation after construction, no lock.
// Mailbox: many producers, one consumer, bounded, behind a mutex; for messages that are rare beside a step.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace headrace {

template <typename T>
class SpscRing {
 public:
  // Holds up to `capacity` items.
  explicit SpscRing(size_t capacity) : size_(capacity + 1), items_(std::make_unique<T[]>(capacity + 1)) {}

  // Producer. False when full.
  bool Push(T item) {
    const size_t tail = tail_.load(std::memory_order_relaxed);
    const size_t next = tail + 1 == size_ ? 0 : tail + 1;
    if (next == head_.load(std::memory_order_acquire)) return false;
    items_[tail] = std::move(item);
    tail_.store(next, std::memory_order_release);
    return true;
  }
  // Consumer. False when empty.
  bool Pop(T& item) {
    const size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    item = std::move(items_[head]);
    head_.store(head + 1 == size_ ? 0 : head + 1, std::memory_order_release);
    return true;
  }

 private:
  const size_t size_;
  std::unique_ptr<T[]> items_;
  alignas(64) std::atomic<size_t> head_{0};
  alignas(64) std::atomic<size_t> tail_{0};
};

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity) : capacity_(capacity) { items_.reserve(capacity); }

  // Any thread. False when full.
  bool Push(T item) EXCLUDES_LOCK(mutex_) {
    MutexLock lock(mutex_);
    if (items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    count_.store(items_.size(), std::memory_order_release);
    return true;
  }
  // The owner. Swaps the content into `out`, which must be empty and have the capacity reserved.
  void Drain(std::vector<T>& out) EXCLUDES_LOCK(mutex_) {
    if (count_.load(std::memory_order_acquire) == 0) return;
    MutexLock lock(mutex_);
    items_.swap(out);
    count_.store(0, std::memory_order_release);
  }
  size_t capacity() const { return capacity_; }
  size_t size() const { return count_.load(std::memory_order_acquire); }

 private:
  const size_t capacity_;
  Mutex mutex_;
  std::vector<T> items_ GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0};
};

}  // namespace headrace
