#include "queueing/waiting_queue.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"

namespace headrace {

WaitingQueue::WaitingQueue(int32_t slots, double ageing_tokens_per_second, int64_t turn_tokens, QueueOrder order)
    : ageing_ns_per_token_(static_cast<double>(kNsPerSecond) / ageing_tokens_per_second),
      order_(order),
      entries_(static_cast<size_t>(slots)),
      shares_(slots, turn_tokens),
      lines_(static_cast<size_t>(shares_.flows())),
      heaps_(slots),
      expiry_(slots) {
  CHECK_GT(ageing_tokens_per_second, 0);
  aside_.reserve(static_cast<size_t>(slots));
}

TimeNs WaitingQueue::DueOf(const QueueSpec& spec) const {
  if (order_ == QueueOrder::kFirstCome) return spec.arrival;
  if (spec.deadline != kNever && !HEADRACE_PLANTED(11)) return spec.deadline;
  const double weight = static_cast<double>(HEADRACE_PLANTED(16) ? 0 : spec.remaining_tokens) * ageing_ns_per_token_;
  return spec.arrival + kUndatedSlack + spec.position * kPositionWeight +
         static_cast<TimeNs>(std::min(weight, static_cast<double>(kWorkWeightLimit)));
}

QueueSpec WaitingQueue::Placed(QueueSpec spec) const {
  if (order_ == QueueOrder::kFirstCome) {
    spec.band = Band::kNormal;
    spec.tenant = 0;
    spec.weight = 1;
  }
  return spec;
}

// ---- in and out ----------------------------------------------------------------------------------------------------

void WaitingQueue::Add(int32_t slot, const QueueSpec& spec) {
  Entry& entry = at(slot);
  CHECK(!entry.present);
  CHECK_GE(spec.position, 0);
  CHECK_LT(spec.position, kPositions);
  entry = {.spec = Placed(spec), .number = next_number_++, .present = true};
  entry.flow = shares_.Open(entry.spec.band, entry.spec.tenant, entry.spec.weight);
  Enter(slot);
  const TimeNs expiry = HEADRACE_PLANTED(12) ? spec.deadline : std::min(spec.deadline, spec.start_before);
  if (expiry != kNever) expiry_.Set(slot, expiry);
}

void WaitingQueue::Remove(int32_t slot) {
  Entry& entry = at(slot);
  CHECK(entry.present);
  if (entry.in_line) Leave(slot);
  if (!HEADRACE_PLANTED(13)) expiry_.Erase(slot);
  shares_.Close(entry.flow);
  entry.present = false;
}

void WaitingQueue::Begin(int32_t slot) {
  Entry& entry = at(slot);
  if (!entry.begun && entry.in_line) CountWaiting(entry, -1);
  entry.begun = true;
  expiry_.Erase(slot);
}

void WaitingQueue::Leave(int32_t slot) {
  Entry& entry = at(slot);
  CHECK(entry.in_line);
  if (entry.aside) {
    aside_.erase(std::find(aside_.begin(), aside_.end(), slot));
    entry.aside = false;
  } else {
    Hide(slot);
  }
  shares_.EndTurn(entry.flow);
  --line(entry.flow).in_line;
  CountTokens(entry, -entry.spec.remaining_tokens);
  if (!entry.begun) CountWaiting(entry, -1);
  entry.in_line = false;
}

void WaitingQueue::Return(int32_t slot, int64_t remaining_tokens) {
  Entry& entry = at(slot);
  CHECK(entry.present);
  if (entry.in_line) return SetRemaining(slot, remaining_tokens);
  entry.spec.remaining_tokens = remaining_tokens;
  Enter(slot);
}

void WaitingQueue::Enter(int32_t slot) {
  Entry& entry = at(slot);
  if (line(entry.flow).in_line++ == 0) shares_.Join(entry.flow);
  entry.in_line = true;
  CountTokens(entry, entry.spec.remaining_tokens);
  if (!entry.begun) CountWaiting(entry, 1);
  Show(slot);
}

// ---- order ---------------------------------------------------------------------------------------------------------

int32_t WaitingQueue::First() const {
  for (int band = 0; band < kBands; ++band) {
    const int32_t flow = shares_.First(static_cast<Band>(HEADRACE_PLANTED(14) ? kBands - 1 - band : band));
    if (flow != kNoFlow) return line(flow).heap;
  }
  return -1;
}

bool WaitingQueue::GoesBefore(int32_t a, int32_t b) const {
  const Entry &first = at(a), &second = at(b);
  if (first.spec.band != second.spec.band) return first.spec.band < second.spec.band;
  if (first.flow != second.flow) return shares_.GoesBefore(first.flow, second.flow);
  return Key{DueOf(first.spec), first.number} < Key{DueOf(second.spec), second.number};
}

void WaitingQueue::SetAside(int32_t slot) {
  CHECK(at(slot).in_line && !at(slot).aside);
  Hide(slot);
  at(slot).aside = true;
  aside_.push_back(slot);
}

void WaitingQueue::RestoreAside() {
  for (int32_t slot : aside_) {
    if (HEADRACE_PLANTED(15) && slot == aside_.back()) continue;
    at(slot).aside = false;
    Show(slot);
  }
  aside_.clear();
}

void WaitingQueue::SetRemaining(int32_t slot, int64_t tokens) {
  Entry& entry = at(slot);
  if (entry.in_line) CountTokens(entry, tokens - entry.spec.remaining_tokens);
  const bool shown = entry.in_line && !entry.aside;
  if (shown) Hide(slot);
  entry.spec.remaining_tokens = tokens;
  if (shown) Show(slot);
}

void WaitingQueue::Charge(int32_t slot, int64_t tokens) {
  CHECK(at(slot).present);
  shares_.Charge(at(slot).flow, tokens, at(slot).in_line);
}

void WaitingQueue::Show(int32_t slot) {
  const Entry& entry = at(slot);
  Line& own = line(entry.flow);
  const bool first = own.heap == kEmptyHeap;
  heaps_.Insert(own.heap, slot, {DueOf(entry.spec), entry.number});
  if (first) shares_.SetReady(entry.flow, true);
}

void WaitingQueue::Hide(int32_t slot) {
  const Entry& entry = at(slot);
  Line& own = line(entry.flow);
  heaps_.Erase(own.heap, slot);
  if (own.heap == kEmptyHeap) shares_.SetReady(entry.flow, false);
}

void WaitingQueue::CountWaiting(const Entry& entry, int32_t change) {
  line(entry.flow).waiting += change;
  of(entry.spec.band).waiting += change;
}

void WaitingQueue::CountTokens(const Entry& entry, int64_t change) {
  line(entry.flow).tokens += change;
  of(entry.spec.band).tokens += change;
}

// ---- expiry --------------------------------------------------------------------------------------------------------

void WaitingQueue::Expired(TimeNs now, std::vector<int32_t>* slots) const {
  expiry_.VisitUpTo(now, [&](int32_t slot) { slots->push_back(slot); });
}

// ---- what admission asks -------------------------------------------------------------------------------------------

int32_t WaitingQueue::waiting() const {
  int32_t sum = 0;
  for (const OfBand& band : bands_) sum += band.waiting;
  return sum;
}

int64_t WaitingQueue::tokens_in_line() const {
  int64_t sum = 0;
  for (const OfBand& band : bands_) sum += band.tokens;
  return sum;
}

int32_t WaitingQueue::waiting_of(uint64_t tenant) const {
  int32_t sum = 0;
  for (int band = 0; band < kBands; ++band) sum += waiting_of(tenant, static_cast<Band>(band));
  return sum;
}

int32_t WaitingQueue::waiting_of(uint64_t tenant, Band band) const {
  const int32_t flow = shares_.Find(band, tenant);
  return flow == kNoFlow ? 0 : line(flow).waiting;
}

LineAhead WaitingQueue::AheadInFlow(int32_t flow, TimeNs due) const {
  LineAhead ahead;
  heaps_.VisitUpTo(line(flow).heap, Key{due, next_number_}, [&](int32_t slot) {
    ahead.tokens += at(slot).spec.remaining_tokens;
    ahead.requests += at(slot).begun ? 0 : 1;
  });
  return ahead;
}

// Urgent bands go wholly before it. In its own band each other flow gets what brings its counter to where the
// request's flow stands when its turn comes, or all that it has in line.
LineAhead WaitingQueue::Ahead(const QueueSpec& offered) const {
  const QueueSpec spec = Placed(offered);
  LineAhead ahead;
  for (int band = 0; band < static_cast<int>(spec.band); ++band) {
    ahead.tokens += bands_[static_cast<size_t>(band)].tokens;
    ahead.requests += bands_[static_cast<size_t>(band)].waiting;
  }
  const int32_t own = shares_.Find(spec.band, spec.tenant);
  LineAhead before;
  double counter = shares_.virtual_time(spec.band);
  if (own != kNoFlow) {
    before = AheadInFlow(own, DueOf(spec));
    counter = line(own).in_line > 0 ? shares_.counter(own) : std::max(counter, shares_.counter(own));
  }
  const double turn =
      counter + static_cast<double>(before.tokens) / std::clamp(spec.weight, kLeastWeight, kLargestWeight);
  for (int32_t flow : shares_.ready(spec.band)) {
    const Line& other = line(flow);
    if (flow == own || other.tokens == 0) continue;
    const double share = std::max(0.0, (turn - shares_.counter(flow)) * shares_.weight(flow));
    const double tokens = std::min(share, static_cast<double>(other.tokens));
    before.tokens += static_cast<int64_t>(tokens);
    before.requests += static_cast<int32_t>(other.waiting * (tokens / static_cast<double>(other.tokens)));
  }
  return {ahead.tokens + before.tokens, ahead.requests + before.requests};
}

void WaitingQueue::CheckIntegrity() const {
  shares_.CheckIntegrity();
  expiry_.CheckIntegrity();
  std::vector<Line> lines(lines_.size());
  std::array<OfBand, kBands> bands{};
  for (int32_t slot = 0; slot < static_cast<int32_t>(entries_.size()); ++slot) {
    const Entry& entry = at(slot);
    CHECK(entry.present || !expiry_.Contains(slot));
    if (!entry.present || !entry.in_line) continue;
    CHECK(!entry.begun || !expiry_.Contains(slot));
    Line& own = lines[static_cast<size_t>(entry.flow)];
    OfBand& band = bands[static_cast<size_t>(entry.spec.band)];
    ++own.in_line;
    own.waiting += entry.begun ? 0 : 1;
    own.tokens += entry.spec.remaining_tokens;
    band.waiting += entry.begun ? 0 : 1;
    band.tokens += entry.spec.remaining_tokens;
    CHECK(entry.aside || !(heaps_.KeyOf(slot) < heaps_.KeyOf(line(entry.flow).heap)));
  }
  for (size_t flow = 0; flow < lines.size(); ++flow) {
    CHECK_EQ(lines[flow].in_line, lines_[flow].in_line);
    CHECK_EQ(lines[flow].waiting, lines_[flow].waiting);
    CHECK_EQ(lines[flow].tokens, lines_[flow].tokens);
  }
  for (size_t band = 0; band < bands.size(); ++band) {
    CHECK_EQ(bands[band].waiting, bands_[band].waiting);
    CHECK_EQ(bands[band].tokens, bands_[band].tokens);
    for (int32_t flow : shares_.ready(static_cast<Band>(band))) CHECK_NE(line(flow).heap, kEmptyHeap);
  }
}

}  // namespace headrace
