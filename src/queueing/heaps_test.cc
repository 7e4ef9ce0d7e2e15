// Goal: both heaps give what a sorted set gives under random inserts, moves and removals, with O(log n) comparisons an
// operation in the worst case, not only on average.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <set>

#include "base/random.h"
#include "queueing/indexed_heap.h"
#include "queueing/mergeable_heaps.h"

namespace headrace {
namespace {

struct CountingKey {
  int64_t value = 0;
  int32_t id = 0;
  inline static int64_t comparisons = 0;
  bool operator<(const CountingKey& other) const {
    ++comparisons;
    return value != other.value ? value < other.value : id < other.id;
  }
};

int64_t Counted(const auto& operation) {
  CountingKey::comparisons = 0;
  operation();
  return CountingKey::comparisons;
}

// What an operation may cost among n: twice up or down, two comparisons a level.
int64_t Bound(int64_t n) { return 4 * static_cast<int64_t>(std::ceil(std::log2(n + 1))) + 4; }

TEST(HeapsTest, IndexedHeapIsASortedSetInLogarithmicTime) {
  for (int32_t n : {1, 7, 256, 4096}) {
    IndexedHeap<CountingKey> heap(n);
    std::set<std::pair<int64_t, int32_t>> expected;
    std::vector<std::optional<int64_t>> in(static_cast<size_t>(n));
    Random random(static_cast<uint64_t>(n));
    int64_t worst = 0;
    for (int i = 0; i < 40'000; ++i) {
      const auto id = static_cast<int32_t>(random.Below(static_cast<uint64_t>(n)));
      auto& now = in[static_cast<size_t>(id)];
      if (now) expected.erase({*now, id});
      if (random.Below(3) == 0) {
        worst = std::max(worst, Counted([&] { heap.Erase(id); }));
        now.reset();
      } else {
        now = static_cast<int64_t>(random.Below(1000));
        expected.insert({*now, id});
        worst = std::max(worst, Counted([&] { heap.Set(id, {*now, id}); }));
      }
      ASSERT_EQ(heap.empty(), expected.empty());
      if (!heap.empty()) ASSERT_EQ(heap.First(), expected.begin()->second);
    }
    heap.CheckIntegrity();
    std::set<int32_t> visited;
    heap.VisitUpTo({500, 0}, [&](int32_t id) { visited.insert(id); });
    std::set<int32_t> below;
    for (const auto& [value, id] : expected) {
      if (std::pair(value, id) <= std::pair<int64_t, int32_t>(500, 0)) below.insert(id);
    }
    EXPECT_EQ(visited, below);
    EXPECT_LE(worst, Bound(n)) << n;
  }
}

TEST(HeapsTest, MergeableHeapsAreSortedSetsInLogarithmicTime) {
  for (int32_t n : {1, 7, 256, 4096}) {
    const size_t heaps = n < 100 ? 1 : 5;
    MergeableHeaps<CountingKey> nodes(n);
    std::vector<int32_t> roots(heaps, kEmptyHeap);
    std::vector<std::set<std::pair<int64_t, int32_t>>> expected(heaps);
    std::vector<int> where(static_cast<size_t>(n), -1);
    Random random(static_cast<uint64_t>(n) + 1);
    int64_t worst = 0;
    for (int i = 0; i < 40'000; ++i) {
      // Rising keys now and then: the order that makes plain leftist spines longest.
      const auto id = static_cast<int32_t>(random.Below(static_cast<uint64_t>(n)));
      int& home = where[static_cast<size_t>(id)];
      if (home >= 0) {
        const auto h = static_cast<size_t>(home);
        expected[h].erase({nodes.KeyOf(id).value, id});
        worst = std::max(worst, Counted([&] { nodes.Erase(roots[h], id); }));
        home = -1;
      } else {
        home = static_cast<int>(random.Below(heaps));
        const auto h = static_cast<size_t>(home);
        const CountingKey key{i % 2 == 0 ? i : static_cast<int64_t>(random.Below(40'000)), id};
        expected[h].insert({key.value, id});
        worst = std::max(worst, Counted([&] { nodes.Insert(roots[h], id, key); }));
      }
      for (size_t h = 0; h < heaps; ++h) {
        ASSERT_EQ(roots[h] == kEmptyHeap, expected[h].empty());
        if (roots[h] != kEmptyHeap) ASSERT_EQ(roots[h], expected[h].begin()->second);
      }
    }
    for (size_t h = 0; h < heaps; ++h) {
      size_t visited = 0, below = 0;
      nodes.VisitUpTo(roots[h], {20'000, 0}, [&](int32_t) { ++visited; });
      for (const auto& key : expected[h]) below += key <= std::pair<int64_t, int32_t>(20'000, 0) ? 1 : 0;
      EXPECT_EQ(visited, below);
    }
    EXPECT_LE(worst, Bound(n)) << n;
  }
}

}  // namespace
}  // namespace headrace
