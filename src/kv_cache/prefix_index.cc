#include "kv_cache/prefix_index.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/planted.h"
#include "base/random.h"

namespace headrace {
namespace {

// Eviction looks at 64 leaves, or at all where there are fewer: in eight runs of neighbours, which costs eight misses
// of the processor's cache and not 64.
constexpr size_t kRuns = 8, kRunLength = 8;
// Visits a touch, from which the estimate learns.
constexpr int kEvictedVisits = 2;

}  // namespace

PrefixIndex::PrefixIndex(int32_t blocks)
    : blocks_(static_cast<size_t>(blocks)),
      ids_(static_cast<size_t>(blocks)),
      buckets_(static_cast<size_t>(blocks), -1),
      pinned_minute_(static_cast<size_t>(blocks), 0),
      evicted_(blocks),
      estimate_(blocks) {
  leaves_.reserve(static_cast<size_t>(blocks));
  CHECK_LE(blocks, 1 << 24);
}

int32_t PrefixIndex::Find(int32_t parent, const BlockName& name, BlockIds ids) const {
  for (int32_t block = buckets_[BucketOf(name)]; block >= 0; block = at(block).next) {
    if (at(block).name != name) continue;
    const bool same = at(block).parent == parent &&
                      std::memcmp(ids_[static_cast<size_t>(block)].data(), ids.data(), ids.size_bytes()) == 0;
    return same ? block : -1;
  }
  return -1;
}

bool PrefixIndex::Publish(int32_t block, int32_t parent, const BlockName& name, BlockIds ids) {
  CHECK(!named(block));
  CHECK(parent < 0 || at(parent).state == State::kInUse);
  const size_t bucket = BucketOf(name);
  for (int32_t other = buckets_[bucket]; other >= 0; other = at(other).next) {
    if (at(other).name == name) return false;
  }
  Block& b = at(block);
  b = {.name = name, .parent = parent, .next = buckets_[bucket], .state = State::kInUse};
  buckets_[bucket] = block;
  std::memcpy(ids_[static_cast<size_t>(block)].data(), ids.data(), ids.size_bytes());
  if (parent >= 0) ++at(parent).children;
  ++named_blocks_;
  if (const auto before = evicted_.Take(name)) {
    estimate_.CountReuse(ReuseEstimate::ClassOf(before->hits), touches_ - before->last);
    b.hits = static_cast<uint16_t>(std::min<uint32_t>(before->hits + 1, UINT16_MAX));
  }
  Touch(block);
  return true;
}

void PrefixIndex::CountHit(int32_t block) {
  Block& b = at(block);
  CHECK(b.state == State::kInUse);
  estimate_.CountReuse(ReuseEstimate::ClassOf(b.hits), touches_ - b.last);
  if (b.hits < UINT16_MAX) ++b.hits;
  Touch(block);
}

void PrefixIndex::Touch(int32_t block) {
  at(block).last = ++touches_;
  Visit();
  estimate_.Touch();
}

// Looks at random blocks, present and evicted, so that the time which blocks spend at an age is known. A visit stands
// for as many touches as pass, on average, between two visits of the same place.
void PrefixIndex::Visit() {
  const auto size = static_cast<double>(blocks_.size());
  const Block& b = blocks_[SplitMix64(++draws_) % blocks_.size()];
  if (b.state == State::kIdle) estimate_.CountVisit(ReuseEstimate::ClassOf(b.hits), touches_ - b.last, size);
  const std::vector<EvictedBlock>& slots = evicted_.slots();
  for (int i = 0; i < kEvictedVisits; ++i) {
    const EvictedBlock& e = slots[SplitMix64(++draws_) % slots.size()];
    if (e.tag != 0)
      estimate_.CountVisit(ReuseEstimate::ClassOf(e.hits), touches_ - e.last,
                           static_cast<double>(slots.size()) / kEvictedVisits);
  }
}

void PrefixIndex::BecomeIdle(int32_t block) {
  Block& b = at(block);
  CHECK(b.state == State::kInUse);
  b.state = State::kIdle;
  b.last = touches_;
  ++idle_blocks_;
  if (b.children == 0) AddLeaf(block);
}

void PrefixIndex::BecomeUsed(int32_t block) {
  Block& b = at(block);
  CHECK(b.state == State::kIdle);
  b.state = State::kInUse;
  --idle_blocks_;
  if (b.leaf >= 0 && !HEADRACE_PLANTED(10)) RemoveLeaf(block);
}

int32_t PrefixIndex::Evict(TimeNs* pinned_until) {
  const int32_t block = LeastWorth();
  const Block& b = at(block);
  *pinned_until = pinned_minute_[static_cast<size_t>(block)] * kNsPerMinute;
  Unpin(block);
  RemoveLeaf(block);
  evicted_.Put(b.name, b.last, b.hits, touches_);
  Unlink(block);
  --idle_blocks_;
  --named_blocks_;
  ++evictions_;
  if (b.parent >= 0 && !HEADRACE_PLANTED(8) && --at(b.parent).children == 0 && idle(b.parent)) AddLeaf(b.parent);
  const BlockName name = b.name;
  at(block) = {};
  at(block).name = name;
  return block;
}

int32_t PrefixIndex::LeastWorth() {
  CHECK(!leaves_.empty());
  const bool only_pinned = pinned_leaves_ == static_cast<int32_t>(leaves_.size());
  const Leaf* least = nullptr;
  double least_worth = 0;
  const auto consider = [&](const Leaf& leaf) {
    if (leaf.pinned && !only_pinned) return;
    const uint32_t age = touches_ - leaf.last;
    const double worth = estimate_.Worth(static_cast<int32_t>(leaf.reuse_class), age);
    if (least == nullptr || worth < least_worth || (worth == least_worth && age > touches_ - least->last)) {
      least = &leaf;
      least_worth = worth;
    }
  };
  for (size_t run = 0; run < kRuns && leaves_.size() > kRuns * kRunLength; ++run) {
    const size_t first = SplitMix64(++draws_) % (leaves_.size() - kRunLength + 1);
    for (size_t i = 0; i < kRunLength; ++i) consider(leaves_[first + i]);
  }
  if (least == nullptr) {  // few leaves, or all that were looked at are pinned
    for (const Leaf& leaf : leaves_) consider(leaf);
  }
  return static_cast<int32_t>(least->block);
}

void PrefixIndex::AddLeaf(int32_t block) {
  Block& b = at(block);
  const bool pinned = pinned_minute_[static_cast<size_t>(block)] != 0;
  b.leaf = static_cast<int32_t>(leaves_.size());
  leaves_.push_back({.block = static_cast<uint32_t>(block) & 0xFFFFFFu,
                     .reuse_class = static_cast<uint32_t>(ReuseEstimate::ClassOf(b.hits)) & 0x7Fu,
                     .pinned = pinned,
                     .last = b.last});
  pinned_leaves_ += pinned;
}

void PrefixIndex::RemoveLeaf(int32_t block) {
  Block& b = at(block);
  pinned_leaves_ -= leaves_[static_cast<size_t>(b.leaf)].pinned;
  leaves_[static_cast<size_t>(b.leaf)] = leaves_.back();
  if (!HEADRACE_PLANTED(9)) at(static_cast<int32_t>(leaves_.back().block)).leaf = b.leaf;
  leaves_.pop_back();
  b.leaf = -1;
}

void PrefixIndex::SetPin(int32_t block, uint32_t minute) {
  const bool pinned = minute != 0;
  pinned_minute_[static_cast<size_t>(block)] = minute;
  if (at(block).leaf < 0) return;
  Leaf& leaf = leaves_[static_cast<size_t>(at(block).leaf)];
  pinned_leaves_ += static_cast<int32_t>(pinned) - static_cast<int32_t>(leaf.pinned);
  leaf.pinned = pinned;
}

bool PrefixIndex::Pin(int32_t block, TimeNs until) {
  CHECK(named(block));
  const uint32_t before = pinned_minute_[static_cast<size_t>(block)];
  const int32_t parent = at(block).parent;
  const uint32_t most = parent < 0 ? UINT32_MAX : pinned_minute_[static_cast<size_t>(parent)];
  if (before == 0 && (pinned_blocks_ >= pinned_blocks_max() || most == 0)) {
    ++pins_refused_;
    return false;
  }
  const auto minute = static_cast<uint32_t>(std::clamp<TimeNs>((until - 1) / kNsPerMinute + 1, 1, most));
  pinned_blocks_ += before == 0;
  if (minute > before) SetPin(block, minute);
  next_expiry_ = std::min(next_expiry_, std::max(minute, before) * kNsPerMinute);
  return true;
}

void PrefixIndex::Unpin(int32_t block) {
  pinned_blocks_ -= pinned_minute_[static_cast<size_t>(block)] != 0;
  SetPin(block, 0);
}

void PrefixIndex::ExpirePins(TimeNs now) {
  if (now < next_expiry_) return;
  next_expiry_ = kNever;
  for (int32_t block = 0; block < static_cast<int32_t>(blocks_.size()); ++block) {
    const uint32_t minute = pinned_minute_[static_cast<size_t>(block)];
    if (minute == 0) continue;
    if (minute * kNsPerMinute <= now) {
      Unpin(block);
    } else {
      next_expiry_ = std::min(next_expiry_, minute * kNsPerMinute);
    }
  }
}

void PrefixIndex::Unlink(int32_t block) {
  int32_t* link = &buckets_[BucketOf(at(block).name)];
  while (*link != block) link = &at(*link).next;
  *link = at(block).next;
}

void PrefixIndex::CheckIntegrity(const std::vector<int32_t>& references) const {
  std::vector<int32_t> children(blocks_.size(), 0);
  int32_t idle_blocks = 0, named_blocks = 0, pinned_blocks = 0;
  size_t leaves = 0;
  int32_t pinned_leaves = 0;
  for (int32_t block = 0; block < static_cast<int32_t>(blocks_.size()); ++block) {
    const Block& b = at(block);
    const uint32_t pinned = pinned_minute_[static_cast<size_t>(block)];
    if (pinned > 0) {
      ++pinned_blocks;
      CHECK_LE(next_expiry_, pinned * kNsPerMinute);
    }
    if (b.state == State::kUnnamed) {
      CHECK_EQ(pinned, 0u);
      CHECK_EQ(b.leaf, -1);
      continue;
    }
    ++named_blocks;
    CHECK_EQ(b.state == State::kInUse, references[static_cast<size_t>(block)] > 0);
    CHECK_EQ(Find(b.parent, b.name, BlockIds(ids_[static_cast<size_t>(block)])), block);
    if (b.parent >= 0) {
      CHECK(named(b.parent));
      CHECK(b.state == State::kIdle || at(b.parent).state == State::kInUse);
      CHECK_LE(pinned, pinned_minute_[static_cast<size_t>(b.parent)]);
      ++children[static_cast<size_t>(b.parent)];
    }
    if (b.state == State::kIdle) ++idle_blocks;
    const bool leaf = b.state == State::kIdle && b.children == 0;
    CHECK_EQ(leaf, b.leaf >= 0);
    if (!leaf) continue;
    ++leaves;
    const Leaf& listed = leaves_[static_cast<size_t>(b.leaf)];
    CHECK_EQ(static_cast<int32_t>(listed.block), block);
    CHECK_EQ(listed.pinned != 0, pinned > 0);
    pinned_leaves += pinned > 0;
  }
  for (size_t block = 0; block < blocks_.size(); ++block) CHECK_EQ(children[block], blocks_[block].children);
  CHECK_EQ(leaves, leaves_.size());
  CHECK_EQ(pinned_leaves, pinned_leaves_);
  CHECK_EQ(pinned_blocks, pinned_blocks_);
  CHECK_LE(pinned_blocks, pinned_blocks_max());
  CHECK_EQ(idle_blocks, idle_blocks_);
  CHECK_EQ(named_blocks, named_blocks_);
  size_t linked = 0;
  for (int32_t first : buckets_) {
    for (int32_t block = first; block >= 0; block = at(block).next) CHECK_LE(++linked, blocks_.size());
  }
  CHECK_EQ(linked, static_cast<size_t>(named_blocks_));
}

}  // namespace headrace
