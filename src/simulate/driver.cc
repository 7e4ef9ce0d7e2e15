#include "simulate/driver.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace headrace {
namespace {

// Steps without a row, one after another, that an engine with work may take: drops of who left or came too late.
constexpr int kIdleStepsMost = 1000;

}  // namespace

TrafficDriver::TrafficDriver(std::span<const RecordedRequest> requests, VirtualClock& clock, Maker maker)
    : requests_(requests), clock_(clock), maker_(std::move(maker)), results_(requests.size()) {
  clock_.Set(kVirtualStart);
  for (size_t i = 0; i < requests_.size(); ++i) {
    const RecordedRequest& r = requests_[i];
    results_[i] = {.tenant = r.tenant, .arrival = ArrivalOf(i), .prompt_tokens = r.prompt_tokens};
  }
}

void TrafficDriver::Attach(Engine& engine, Faults* faults) {
  engine_ = &engine;
  faults_ = faults;
  if (keep_answers_) answers_.resize(requests_.size());
}

void TrafficDriver::Run() {
  while (next_ < requests_.size() || engine_->inside() > 0) {
    if (faults_ != nullptr) CancelBy(*faults_);
    const uint64_t steps = engine_->stats().steps.load(std::memory_order_relaxed);
    const TimeNs wake = engine_->Step(clock_.Now());
    Collect();
    idle_steps_ = engine_->stats().steps.load(std::memory_order_relaxed) == steps ? idle_steps_ + 1 : 0;
    const TimeNs next = std::min(wake, next_ < requests_.size() ? ArrivalOf(next_) : kNever);
    if (next == kNever || idle_steps_ > kIdleStepsMost) break;  // whoever is inside is lost
    if (wake > clock_.Now()) Pass(std::max<TimeNs>(next - clock_.Now(), 0));
  }
  engine_->Step(clock_.Now());
  Collect(true);
}

void TrafficDriver::Pass(TimeNs time) {
  const TimeNs end = clock_.Now() + time;
  if (engine_->stats().waiting.load(std::memory_order_relaxed) > 0) {
    waited_ns_ += static_cast<double>(time);
    used_block_ns_ += static_cast<double>(time) * engine_->stats().kv_blocks_used.load(std::memory_order_relaxed) /
                      engine_->description().kv_blocks;
  }
  ArriveUntil(end);
  clock_.Set(end);
}

void TrafficDriver::ArriveUntil(TimeNs end) {
  for (; next_ < requests_.size() && ArrivalOf(next_) <= end; ++next_) {
    clock_.Set(std::max(clock_.Now(), ArrivalOf(next_)));
    Arrive(next_);
  }
}

void TrafficDriver::Arrive(size_t index) {
  auto stream = engine_->Submit(maker_(index, clock_.Now()), nullptr);
  if (stream) return open_.push_back({std::move(*stream), index});
  results_[index].outcome = Outcome::kRefused;
  results_[index].end = clock_.Now();
  Note(index, static_cast<uint64_t>(stream.error().code));
}

void TrafficDriver::CancelBy(Faults& faults) {
  for (Open& open : open_) {
    if (!open.done && faults.CancelsNow(open.index, open.stream->id())) Cancel(open);
  }
}

// Its last events may be there already: it is all the same to whoever has gone.
void TrafficDriver::Cancel(Open& open) {
  open.stream->Cancel();
  open.done = any_done_ = true;
  results_[open.index].outcome = Outcome::kCancelled;
  results_[open.index].end = clock_.Now();
  Note(open.index, 1);
}

// `all`: from those, too, who read slowly.
void TrafficDriver::Collect(bool all) {
  const TimeNs now = clock_.Now();
  for (Open& open : open_) {
    if (!open.done && (all || faults_ == nullptr || !faults_->HoldsBack(open.index))) CollectFrom(open, now);
  }
  if (std::exchange(any_done_, false)) std::erase_if(open_, [](const Open& open) { return open.done; });
}

void TrafficDriver::CollectFrom(Open& open, TimeNs now) {
  RequestResult& result = results_[open.index];
  for (TokenEvent event; open.stream->Pop(event);) {
    Note(open.index,
         (static_cast<uint64_t>(static_cast<uint32_t>(event.token)) << 8) | static_cast<uint64_t>(event.finish));
    if (event.token >= 0) {
      if (result.output_tokens++ == 0) {
        result.first_token = now;
      } else {
        gaps_ms_.push_back(static_cast<double>(now - open.last_token) / kNsPerMs);
      }
      open.last_token = now;
      if (keep_answers_) answers_[open.index].push_back(event.token);
    }
    if (event.finish != EndReason::kNone) End(open, event, now);
  }
}

void TrafficDriver::End(Open& open, const TokenEvent& event, TimeNs now) {
  RequestResult& result = results_[open.index];
  open.done = any_done_ = true;
  if (faults_ != nullptr && faults_->CancelsEnded(open.index)) open.stream->Cancel();
  result.end = now;
  result.cached_tokens = open.stream->cached_tokens();
  if (event.finish != EndReason::kError) {
    // An answer that ends with its first draw has no token, but its first moment.
    if (result.first_token == kNever) result.first_token = now;
    result.outcome = Outcome::kFinished;
  } else {
    const ErrorCode code = open.stream->error().code;
    result.outcome = code == ErrorCode::kInternal ? Outcome::kFailed : Outcome::kExpired;
  }
}

void TrafficDriver::Note(uint64_t who, uint64_t what) {
  events_hash_ =
      SplitMix64(events_hash_ ^ SplitMix64(who) ^ SplitMix64(what + 1) ^ static_cast<uint64_t>(clock_.Now()));
}

}  // namespace headrace
