#include "kv_cache/tier_index.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

TierIndex::TierIndex(int32_t places) : entries_(static_cast<size_t>(places)), buckets_(entries_.size(), -1) {
  CHECK_GE(places, 1);
  for (int32_t place = places - 1; place >= 0; --place) {
    at(place).next = free_;
    free_ = place;
  }
}

int32_t TierIndex::Find(const BlockName& name) const {
  for (int32_t place = buckets_[BucketOf(name)]; place >= 0; place = at(place).next) {
    if (at(place).name == name) return place;
  }
  return -1;
}

int32_t TierIndex::Insert(const BlockName& name, const BlockName* parent) {
  CHECK(!full());
  CHECK_EQ(Find(name), -1);
  const int32_t behind = parent == nullptr ? -1 : Find(*parent);
  const int32_t place = free_;
  Entry& entry = at(place);
  free_ = entry.next;
  int32_t& bucket = buckets_[BucketOf(name)];
  entry = {.name = name, .next = bucket, .generation = entry.generation + 1, .used = true};
  bucket = place;
  ++used_;
  LinkBehind(place, behind);
  return place;
}

void TierIndex::Remove(int32_t place) {
  Entry& entry = at(place);
  CHECK(entry.used);
  Unpin(entry);
  Unlink(place);
  int32_t* link = &buckets_[BucketOf(entry.name)];
  while (*link != place) link = &at(*link).next;
  *link = entry.next;
  entry.used = entry.ready = false;
  entry.next = free_;
  free_ = place;
  --used_;
}

void TierIndex::Touch(int32_t place) {
  Unlink(place);
  LinkBehind(place, -1);
}

bool TierIndex::Pin(int32_t place, TimeNs until, TimeNs now) {
  if (until <= now) return true;
  EndPins(now);
  Entry& entry = at(place);
  if (entry.pinned_until == 0) {
    if (pinned_ >= PinnedBlocksMax(places())) return false;
    ++pinned_;
  }
  entry.pinned_until = std::max(entry.pinned_until, until);
  next_pin_end_ = std::min(next_pin_end_, entry.pinned_until);
  return true;
}

void TierIndex::EndPins(TimeNs now) {
  if (now < next_pin_end_) return;
  next_pin_end_ = kNever;
  for (Entry& entry : entries_) {
    if (entry.pinned_until == 0) continue;
    if (entry.pinned_until <= now) {
      Unpin(entry);
    } else {
      next_pin_end_ = std::min(next_pin_end_, entry.pinned_until);
    }
  }
}

void TierIndex::Unpin(Entry& entry) {
  if (entry.pinned_until != 0) --pinned_;
  entry.pinned_until = 0;
}

// Pinned ones that are met go to the front, so that they are not met again at once.
int32_t TierIndex::LeastWanted(TimeNs now) {
  for (int looked = 0; looked < kLookedAt && oldest_ >= 0; ++looked) {
    Entry& entry = at(oldest_);
    if (entry.pinned_until <= now) {
      Unpin(entry);
      return oldest_;
    }
    Touch(oldest_);
  }
  return -1;
}

void TierIndex::LinkBehind(int32_t place, int32_t newer) {
  Entry& entry = at(place);
  entry.newer = newer;
  int32_t& before = newer < 0 ? newest_ : at(newer).older;
  entry.older = before;
  before = place;
  (entry.older < 0 ? oldest_ : at(entry.older).newer) = place;
}

void TierIndex::Unlink(int32_t place) {
  const Entry& entry = at(place);
  (entry.newer < 0 ? newest_ : at(entry.newer).older) = entry.older;
  (entry.older < 0 ? oldest_ : at(entry.older).newer) = entry.newer;
}

void TierIndex::CheckIntegrity() const {
  int32_t used = 0, pinned = 0, ordered = 0, free = 0;
  for (int32_t place = 0; place < places(); ++place) {
    if (!at(place).used) continue;
    ++used;
    pinned += at(place).pinned_until != 0;
    CHECK_EQ(Find(at(place).name), place);
  }
  CHECK_EQ(used, used_);
  CHECK_EQ(pinned, pinned_);
  CHECK_LE(pinned, PinnedBlocksMax(places()));
  int32_t newer = -1;
  for (int32_t place = newest_; place >= 0; newer = place, place = at(place).older) {
    CHECK_LE(++ordered, used);
    CHECK(at(place).used);
    CHECK_EQ(at(place).newer, newer);
  }
  CHECK_EQ(ordered, used);
  CHECK_EQ(oldest_, newer);
  for (int32_t place = free_; place >= 0; place = at(place).next) CHECK_LE(++free, places());
  CHECK_EQ(free + used, places());
}

}  // namespace headrace
