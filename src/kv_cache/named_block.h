// A block as another tier knows it: its name and its ids. The parent needs no field: a name is a keyed hash over it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "kv_cache/block_name.h"

namespace headrace {

struct NamedBlock {
  BlockName name;
  std::array<int32_t, kBlockTokens> ids{};

  void SetIds(BlockIds from) { std::ranges::copy(from, ids.begin()); }
  bool operator==(const NamedBlock&) const = default;
};

// A block of the pool that has just been published or evicted.
struct BlockNote {
  int32_t block = -1;
  int32_t depth = 0;  // of a published one: blocks before it in its prefix
  BlockName parent;   // likewise
  NamedBlock named;
  TimeNs pinned_until = 0;  // of an evicted one; 0: not pinned
};

// A block of the pool that a request keeps until then.
struct BlockPin {
  BlockName name;
  TimeNs until = 0;
};

// What happened to blocks in one step, for who copies them elsewhere. Bounded; what finds no room is counted.
struct BlockNotes {
  static constexpr size_t kNotesMax = 4096;  // of each kind; 1.2 MB

  std::vector<BlockNote> evicted;    // content is whole until the next step is submitted
  std::vector<BlockNote> published;  // content is whole
  std::vector<BlockPin> pinned;      // or pinned for longer
  uint64_t lost = 0;

  // One place for each block of a pool, up to kNotesMax.
  void Reserve(int32_t blocks) {
    for (auto* notes : {&evicted, &published}) notes->reserve(std::min(static_cast<size_t>(blocks), kNotesMax));
    pinned.reserve(std::min(static_cast<size_t>(blocks), kNotesMax));
  }
  void Clear() {
    evicted.clear();
    published.clear();
    pinned.clear();
  }
  template <typename Note>
  Note* Add(std::vector<Note>& notes) {
    if (notes.size() < notes.capacity()) return &notes.emplace_back();
    ++lost;
    return nullptr;
  }
};

}  // namespace headrace
