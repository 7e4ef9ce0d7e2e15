// Many heaps over one set of numbers: each flow's own line, without room set aside for each flow's worst case. Leftist
// trees (Crane 1972; Knuth, The Art of Computer Programming 3, 5.2.3): a right spine of n nodes' tree has at most
// log2(n + 1), so Insert and Erase are O(log n), worst case. All links are allocated at construction. One thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/planted.h"

namespace headrace {

// Key: copyable, ordered by <. A heap is the number at its root; kEmptyHeap for none.
constexpr int32_t kEmptyHeap = -1;

template <typename Key>
class MergeableHeaps {
 public:
  // Numbers in [0, ids), each in at most one heap.
  explicit MergeableHeaps(int32_t ids) : nodes_(static_cast<size_t>(ids)) {}

  const Key& KeyOf(int32_t id) const { return at(id).key; }

  void Insert(int32_t& root, int32_t id, const Key& key) {
    at(id) = Node{.key = key};
    root = Merge(root, id);
    at(root).parent = kEmptyHeap;
  }

  // REQUIRES: `id` is in the heap of `root`.
  void Erase(int32_t& root, int32_t id) {
    const int32_t parent = at(id).parent;
    const int32_t merged = Merge(at(id).left, at(id).right);
    if (merged != kEmptyHeap) at(merged).parent = parent;
    if (parent == kEmptyHeap) {
      root = merged;
      return;
    }
    (at(parent).left == id ? at(parent).left : at(parent).right) = merged;
    for (int32_t node = parent; node != kEmptyHeap && Rebalance(node); node = at(node).parent) {
    }
  }

  // Calls visit(id) for each number whose key is not greater than `limit`, in no particular order: O(visited).
  template <typename Visit>
  void VisitUpTo(int32_t root, const Key& limit, const Visit& visit) const {
    for (int32_t node = root; node != kEmptyHeap;) {
      if (!(limit < at(node).key)) {
        visit(node);
        if (at(node).left != kEmptyHeap) {
          node = at(node).left;
          continue;
        }
      }
      int32_t parent = at(node).parent;
      while (parent != kEmptyHeap && (at(parent).right == node || at(parent).right == kEmptyHeap))
        node = std::exchange(parent, at(parent).parent);
      node = parent == kEmptyHeap ? kEmptyHeap : at(parent).right;
    }
  }

 private:
  struct Node {
    Key key{};
    int32_t parent = kEmptyHeap, left = kEmptyHeap, right = kEmptyHeap;
    int32_t rank = 1;  // nodes on the shortest way down to a missing child
  };

  Node& at(int32_t id) { return nodes_[static_cast<size_t>(id)]; }
  const Node& at(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  int32_t RankOf(int32_t id) const { return id == kEmptyHeap ? 0 : at(id).rank; }

  // Recursion as deep as the two right spines: 2 x 31 at most.
  int32_t Merge(int32_t a, int32_t b) {
    if (a == kEmptyHeap) return b;
    if (b == kEmptyHeap) return a;
    if (at(b).key < at(a).key && !HEADRACE_PLANTED(21)) std::swap(a, b);
    const int32_t right = Merge(at(a).right, b);
    at(a).right = right;
    at(right).parent = a;
    Rebalance(a);
    return a;
  }

  // The deeper child goes left. True when the rank changed.
  bool Rebalance(int32_t id) {
    Node& node = at(id);
    if (RankOf(node.left) < RankOf(node.right)) std::swap(node.left, node.right);
    return std::exchange(node.rank, RankOf(node.right) + 1) != node.rank;
  }

  std::vector<Node> nodes_;
};

}  // namespace headrace
