// Which blocks a tier below the pool holds, by name, and in which place: ids only, no bytes. What is wanted least
// recently goes first, and a block before its parent, so that a prefix loses its end first: a child enters behind its
// parent, and who touches a chain does so from its end to its beginning.
//
// One thread; sized once, allocates nothing afterwards. Invariants, checked by CheckIntegrity: each used place is found
// by its name and lies in its bucket and in the order once; used + free = all; not too many are pinned.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "kv_cache/block_name.h"
#include "kv_cache/pins.h"

namespace headrace {

class TierIndex {
 public:
  // REQUIRES: places >= 1.
  explicit TierIndex(int32_t places);

  int32_t places() const { return static_cast<int32_t>(entries_.size()); }
  int32_t used() const { return used_; }
  int32_t pinned() const { return pinned_; }
  bool full() const { return used_ == places(); }

  // The place of a name; -1: none.
  int32_t Find(const BlockName& name) const;
  const BlockName& name(int32_t place) const { return at(place).name; }
  // Its bytes are there.
  bool ready(int32_t place) const { return at(place).ready; }
  void SetReady(int32_t place) { at(place).ready = true; }
  // Differs from use to use of the place.
  uint32_t generation(int32_t place) const { return at(place).generation; }

  // Gives a name a place, not ready yet: right behind its parent's if that is here (null: not known), else foremost.
  // REQUIRES: not full, the name is not here.
  int32_t Insert(const BlockName& name, const BlockName* parent);
  void Remove(int32_t place);
  // Makes it the most recently wanted.
  void Touch(int32_t place);
  // Keeps it from being LeastWanted until `until`, or as long as it is kept already. False, and nothing changes:
  // PinnedBlocksMax are kept.
  bool Pin(int32_t place, TimeNs until, TimeNs now);
  // Ends the pins whose time is over, so that pinned() is true.
  void EndPins(TimeNs now);
  // The place to give up first; -1: none, or the first kLookedAt are all pinned.
  int32_t LeastWanted(TimeNs now);

  void CheckIntegrity() const;

 private:
  static constexpr int kLookedAt = 64;
  struct Entry {
    BlockName name;
    int32_t next = -1;               // in its bucket, or in the free list
    int32_t newer = -1, older = -1;  // in the order
    uint32_t generation = 0;
    TimeNs pinned_until = 0;  // 0: not pinned
    bool used = false, ready = false;
  };

  Entry& at(int32_t place) { return entries_[static_cast<size_t>(place)]; }
  const Entry& at(int32_t place) const { return entries_[static_cast<size_t>(place)]; }
  size_t BucketOf(const BlockName& name) const { return (name.low >> 32) * buckets_.size() >> 32; }
  void Unpin(Entry& entry);
  void LinkBehind(int32_t place, int32_t newer);  // -1: foremost
  void Unlink(int32_t place);

  std::vector<Entry> entries_;
  std::vector<int32_t> buckets_;
  int32_t free_ = -1;
  int32_t newest_ = -1, oldest_ = -1;
  int32_t used_ = 0, pinned_ = 0;
  TimeNs next_pin_end_ = kNever;  // no pin ends before it
};

}  // namespace headrace
