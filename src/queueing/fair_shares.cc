#include "queueing/fair_shares.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/planted.h"
#include "base/random.h"

namespace headrace {

FairShares::FairShares(int32_t owners, int64_t turn_tokens)
    : turn_tokens_(turn_tokens),
      flows_(static_cast<size_t>(owners) + kIndebtedFlows),
      table_(std::bit_ceil(2 * flows_.size()), kNoFlow),
      bands_{{{0, IndexedHeap<Key>(flows())},
              {0, IndexedHeap<Key>(flows())},
              {0, IndexedHeap<Key>(flows())},
              {0, IndexedHeap<Key>(flows())}}} {
  for (int32_t flow = flows() - 1; flow >= 0; --flow) free_.push_back(flow);
}

size_t FairShares::HomeOf(Band band, uint64_t tenant) const {
  return KeyedRandom(tenant, static_cast<uint64_t>(band)) & (table_.size() - 1);
}

// Where the flow stands in the table, or the empty place where it would.
size_t FairShares::PlaceOf(Band band, uint64_t tenant) const {
  size_t place = HomeOf(band, tenant);
  while (table_[place] != kNoFlow && (at(table_[place]).tenant != tenant || at(table_[place]).band != band))
    place = (place + 1) & (table_.size() - 1);
  return place;
}

int32_t FairShares::Find(Band band, uint64_t tenant) const { return table_[PlaceOf(band, tenant)]; }

int32_t FairShares::Open(Band band, uint64_t tenant, double weight) {
  const double bounded = weight >= kLeastWeight ? std::min(weight, kLargestWeight) : kLeastWeight;  // NaN: the least
  int32_t flow = Find(band, tenant);
  if (flow == kNoFlow) {
    if (free_.empty()) Forget(oldest_);  // each owner holds one flow at most, so somebody is without
    flow = free_.back();
    free_.pop_back();
    at(flow) = {.tenant = tenant,
                .band = band,
                .counter = of(band).virtual_time,
                .began_at = of(band).virtual_time,
                .known = true};
    table_[PlaceOf(band, tenant)] = flow;
  } else if (at(flow).owners == 0) {
    Unlink(flow);
  }
  at(flow).weight = bounded;
  ++at(flow).owners;
  return flow;
}

void FairShares::Close(int32_t flow) {
  Flow& f = at(flow);
  CHECK_GT(f.owners, 0);
  if (--f.owners > 0) return;
  f.older = youngest_;
  f.younger = kNoFlow;
  (youngest_ == kNoFlow ? oldest_ : at(youngest_).younger) = flow;
  youngest_ = flow;
  if (f.counter <= of(f.band).virtual_time) Forget(flow);
}

// Takes the flow out of the table; what probed past it moves up (Knuth 3, 6.4, algorithm R).
void FairShares::Forget(int32_t flow) {
  CHECK_EQ(at(flow).owners, 0);
  Unlink(flow);
  const size_t mask = table_.size() - 1;
  size_t hole = PlaceOf(at(flow).band, at(flow).tenant);
  CHECK_EQ(table_[hole], flow);
  table_[hole] = kNoFlow;
  for (size_t next = (hole + 1) & mask; table_[next] != kNoFlow; next = (next + 1) & mask) {
    const size_t home = HomeOf(at(table_[next]).band, at(table_[next]).tenant);
    if (((next - home) & mask) < ((next - hole) & mask)) continue;
    table_[hole] = table_[next];
    table_[next] = kNoFlow;
    hole = next;
  }
  at(flow).known = false;
  free_.push_back(flow);
}

void FairShares::Unlink(int32_t flow) {
  Flow& f = at(flow);
  (f.older == kNoFlow ? oldest_ : at(f.older).younger) = f.younger;
  (f.younger == kNoFlow ? youngest_ : at(f.younger).older) = f.older;
  f.older = f.younger = kNoFlow;
}

void FairShares::SetReady(int32_t flow, bool ready) {
  Flow& f = at(flow);
  if (ready) {
    of(f.band).ready.Set(flow, KeyOf(flow));
  } else {
    of(f.band).ready.Erase(flow);
  }
}

void FairShares::Join(int32_t flow) {
  Flow& f = at(flow);
  if (!HEADRACE_PLANTED(17)) f.counter = std::max(f.counter, of(f.band).virtual_time);
  EndTurn(flow);
}

void FairShares::EndTurn(int32_t flow) {
  at(flow).turn_tokens = 0;
  at(flow).began_at = at(flow).counter;
  MoveReady(flow);
}

void FairShares::MoveReady(int32_t flow) {
  IndexedHeap<Key>& ready = of(at(flow).band).ready;
  if (ready.Contains(flow)) ready.Set(flow, KeyOf(flow));
}

void FairShares::Charge(int32_t flow, int64_t tokens, bool in_line) {
  Flow& f = at(flow);
  OfBand& band = of(f.band);
  if (in_line) {
    band.virtual_time = std::max(band.virtual_time, f.began_at);
    f.turn_tokens += tokens;
  }
  f.counter += static_cast<double>(tokens) / (HEADRACE_PLANTED(18) ? 1 : f.weight);
  if (f.turn_tokens == 0 || (f.turn_tokens >= turn_tokens_ && !HEADRACE_PLANTED(19))) {
    f.turn = ++turn_;
    EndTurn(flow);
  }
  if (band.ready.empty()) band.virtual_time = std::max(band.virtual_time, f.counter);
}

int32_t FairShares::First(Band band) const { return of(band).ready.empty() ? kNoFlow : of(band).ready.First(); }

void FairShares::CheckIntegrity() const {
  size_t known = 0;
  for (int32_t flow = 0; flow < flows(); ++flow) {
    const Flow& f = at(flow);
    known += f.known ? 1 : 0;
    if (f.known) CHECK_EQ(Find(f.band, f.tenant), flow);
    CHECK(f.known || f.owners == 0);
    for (const OfBand& band : bands_) CHECK(!band.ready.Contains(flow) || (f.owners > 0 && &band == &of(f.band)));
  }
  CHECK_EQ(known + free_.size(), flows_.size());
  for (const OfBand& band : bands_) band.ready.CheckIntegrity();
}

}  // namespace headrace
