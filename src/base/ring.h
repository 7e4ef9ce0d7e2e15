// A bounded queue between two threads: one producer, one consumer, fixed capacity, no allocation after construction, no
// lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

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

}  // namespace headrace
