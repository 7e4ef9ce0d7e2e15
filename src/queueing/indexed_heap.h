// A binary heap over small numbers (slots, flows) whose entries can be found, moved and taken out: O(log n), worst
// case. Room for every number is taken at construction; nothing allocates afterwards. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/planted.h"

namespace headrace {

// Key: copyable, ordered by <. The least is first; equal keys leave in any order that repeats itself.
template <typename Key>
class IndexedHeap {
 public:
  // Holds numbers in [0, ids).
  explicit IndexedHeap(int32_t ids) : place_(static_cast<size_t>(ids), kNowhere), keys_(static_cast<size_t>(ids)) {
    heap_.reserve(static_cast<size_t>(ids));
  }

  bool empty() const { return heap_.empty(); }
  // In no particular order.
  std::span<const int32_t> ids() const { return heap_; }
  bool Contains(int32_t id) const { return place_[Index(id)] != kNowhere; }
  // REQUIRES: not empty.
  int32_t First() const { return heap_.front(); }
  const Key& FirstKey() const { return keys_[Index(heap_.front())]; }

  // Puts `id` in, or moves it.
  void Set(int32_t id, const Key& key) {
    keys_[Index(id)] = key;
    if (!Contains(id)) {
      place_[Index(id)] = static_cast<int32_t>(heap_.size());
      heap_.push_back(id);
    }
    Down(Up(place_[Index(id)]));
  }

  // Nothing happens when it is not in.
  void Erase(int32_t id) {
    const int32_t place = std::exchange(place_[Index(id)], kNowhere);
    if (place == kNowhere) return;
    const int32_t last = heap_.back();
    heap_.pop_back();
    if (last == id) return;
    Put(place, last);
    Down(Up(place));
  }

  // Calls visit(id) for each whose key is not greater than `limit`: O(visited).
  template <typename Visit>
  void VisitUpTo(const Key& limit, const Visit& visit, size_t place = 0) const {
    if (place >= heap_.size() || limit < keys_[Index(heap_[place])]) return;
    visit(heap_[place]);
    VisitUpTo(limit, visit, 2 * place + 1);
    VisitUpTo(limit, visit, 2 * place + 2);
  }

  void CheckIntegrity() const {
    for (size_t i = 0; i < heap_.size(); ++i) {
      CHECK_EQ(place_[Index(heap_[i])], static_cast<int32_t>(i));
      CHECK(i == 0 || !(keys_[Index(heap_[i])] < keys_[Index(heap_[(i - 1) / 2])]));
    }
  }

 private:
  static constexpr int32_t kNowhere = -1;
  static size_t Index(int32_t id) { return static_cast<size_t>(id); }
  bool Less(int32_t a, int32_t b) const { return keys_[Index(heap_[Index(a)])] < keys_[Index(heap_[Index(b)])]; }
  void Put(int32_t place, int32_t id) {
    heap_[Index(place)] = id;
    place_[Index(id)] = place;
  }
  void Swap(int32_t a, int32_t b) {
    const int32_t at_a = heap_[Index(a)], at_b = heap_[Index(b)];
    Put(a, at_b);
    Put(b, at_a);
  }
  int32_t Up(int32_t place) {
    for (; place > 0 && Less(place, (place - 1) / 2); place = (place - 1) / 2) Swap(place, (place - 1) / 2);
    return place;
  }
  void Down(int32_t place) {
    const auto size = static_cast<int32_t>(heap_.size());
    for (int32_t child = 2 * place + 1; child < size; child = 2 * place + 1) {
      if (child + 1 < size && Less(child + 1, child) && !HEADRACE_PLANTED(20)) ++child;
      if (!Less(child, place)) return;
      Swap(place, child);
      place = child;
    }
  }

  std::vector<int32_t> heap_;
  std::vector<int32_t> place_;  // in heap_, by number
  std::vector<Key> keys_;       // by number
};

}  // namespace headrace
