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
      evicted_(blocks),
      estimate_(blocks) {
  leaves_.reserve(static_cast<size_t>(blocks));
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

int32_t PrefixIndex::Evict() {
  const int32_t block = LeastWorth();
  const Block& b = at(block);
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
  const Leaf* least = nullptr;
  double least_worth = 0;
  const auto consider = [&](const Leaf& leaf) {
    const uint32_t age = touches_ - leaf.last;
    const double worth = estimate_.Worth(leaf.reuse_class, age);
    if (least == nullptr || worth < least_worth || (worth == least_worth && age > touches_ - least->last)) {
      least = &leaf;
      least_worth = worth;
    }
  };
  if (leaves_.size() <= kRuns * kRunLength) {
    for (const Leaf& leaf : leaves_) consider(leaf);
    return least->block;
  }
  for (size_t run = 0; run < kRuns; ++run) {
    const size_t first = SplitMix64(++draws_) % (leaves_.size() - kRunLength + 1);
    for (size_t i = 0; i < kRunLength; ++i) consider(leaves_[first + i]);
  }
  return least->block;
}

void PrefixIndex::AddLeaf(int32_t block) {
  Block& b = at(block);
  b.leaf = static_cast<int32_t>(leaves_.size());
  leaves_.push_back({block, b.last, ReuseEstimate::ClassOf(b.hits)});
}

void PrefixIndex::RemoveLeaf(int32_t block) {
  Block& b = at(block);
  leaves_[static_cast<size_t>(b.leaf)] = leaves_.back();
  if (!HEADRACE_PLANTED(9)) at(leaves_.back().block).leaf = b.leaf;
  leaves_.pop_back();
  b.leaf = -1;
}

void PrefixIndex::Unlink(int32_t block) {
  int32_t* link = &buckets_[BucketOf(at(block).name)];
  while (*link != block) link = &at(*link).next;
  *link = at(block).next;
}

void PrefixIndex::CheckIntegrity(const std::vector<int32_t>& references) const {
  std::vector<int32_t> children(blocks_.size(), 0);
  int32_t idle_blocks = 0, named_blocks = 0;
  size_t leaves = 0;
  for (int32_t block = 0; block < static_cast<int32_t>(blocks_.size()); ++block) {
    const Block& b = at(block);
    if (b.state == State::kUnnamed) {
      CHECK_EQ(b.leaf, -1);
      continue;
    }
    ++named_blocks;
    CHECK_EQ(b.state == State::kInUse, references[static_cast<size_t>(block)] > 0);
    CHECK_EQ(Find(b.parent, b.name, BlockIds(ids_[static_cast<size_t>(block)])), block);
    if (b.parent >= 0) {
      CHECK(named(b.parent));
      CHECK(b.state == State::kIdle || at(b.parent).state == State::kInUse);
      ++children[static_cast<size_t>(b.parent)];
    }
    if (b.state == State::kIdle) ++idle_blocks;
    const bool leaf = b.state == State::kIdle && b.children == 0;
    CHECK_EQ(leaf, b.leaf >= 0);
    if (!leaf) continue;
    ++leaves;
    CHECK_EQ(leaves_[static_cast<size_t>(b.leaf)].block, block);
  }
  for (size_t block = 0; block < blocks_.size(); ++block) CHECK_EQ(children[block], blocks_[block].children);
  CHECK_EQ(leaves, leaves_.size());
  CHECK_EQ(idle_blocks, idle_blocks_);
  CHECK_EQ(named_blocks, named_blocks_);
  size_t linked = 0;
  for (int32_t first : buckets_) {
    for (int32_t block = first; block >= 0; block = at(block).next) CHECK_LE(++linked, blocks_.size());
  }
  CHECK_EQ(linked, static_cast<size_t>(named_blocks_));
}

}  // namespace headrace
