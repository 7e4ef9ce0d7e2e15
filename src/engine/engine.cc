#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "base/planted.h"
#include "engine/active.h"

namespace headrace {
namespace {

// Adjustments of one step that are reserved for: beyond this many the vector grows once and keeps its size.
constexpr size_t kAdjustmentsReserved = 1 << 16;
// Forecasts after which one counts for 1 / e in what all requests learn together.
constexpr float kAcceptanceMemory = 1000;

SchedulerLimits LimitsOf(const ExecutorDescription& d, const EngineOptions& options) {
  return {.context = d.context,
          .batch_tokens_max = d.rows_max,
          .shared_tokens_max = std::min(options.shared_tokens_max, d.rows_max),
          .logit_rows_max = d.logit_rows_max,
          .sequences_max = d.sequences_max,
          .waiting_max = DefaultAdmissionLimits(options.waiting_max).places(),
          .prefix_cache = options.prefix_cache,
          .room_ahead = options.room_ahead,
          .order = options.order,
          .itl_target = options.itl_target};
}

}  // namespace

Engine::Engine(Executor& executor, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options)
    : executor_(executor),
      tokenizer_(tokenizer),
      clock_(clock),
      description_(executor.Describe()),
      options_(options),
      drafts_max_(std::clamp(std::min(options.drafts_max, description_.drafts_max), 0, kDraftsMax)),
      scheduler_(LimitsOf(description_, options), description_.kv_blocks),
      admission_(DefaultAdmissionLimits(options.waiting_max)),
      brown_out_(options.brown_out_wait),
      recorder_(options.decisions),
      acceptance_(kAcceptanceMemory),
      drafts_wanted_(drafts_max_) {
  recorder_.Setup(scheduler_.limits(), description_.kv_blocks, options.waiting_max, options.brown_out_wait,
                  drafts_max_);
  const auto slots = static_cast<size_t>(scheduler_.limits().waiting_max + description_.sequences_max);
  by_slot_.resize(slots);
  slots_.reserve(slots);
  dropped_.reserve(slots);
  bells_.reserve(slots);
  scheduler_.ReservePlan(&plan_);
  if (options.prefix_cache && options.second_tier != nullptr && options.second_tier->any())
    mover_ = std::make_unique<BlockMover>(*options.second_tier, executor, scheduler_, clock, bell_);
  const auto sequences = static_cast<size_t>(description_.sequences_max);
  input_.token_ids.reserve(static_cast<size_t>(description_.rows_max));
  input_.spans.reserve(sequences);
  // Sequences that share blocks each name them.
  input_.blocks.reserve(
      sequences * static_cast<size_t>(std::min<int64_t>(description_.kv_blocks, BlocksFor(description_.context))));
  input_.samples.reserve(static_cast<size_t>(description_.logit_rows_max));
  input_.adjustments.reserve(kAdjustmentsReserved);
  ReserveDrafts();
}

Engine::~Engine() = default;

TimeNs Engine::Step(TimeNs now) {
  if (mover_) mover_->BringIn(now);
  {
    const MutexLock lock(mutex_);
    DropCancelledAndLate(now);
    scheduler_.ExpirePins(now);
    if (mover_) mover_->EndRestores(now);
    OfferDrafts();
    scheduler_.Plan(&plan_);
    recorder_.Planned(now, plan_, [&](int32_t slot) { return by_slot_[static_cast<size_t>(slot)]->stream->id(); });
    Build();
  }
  if (mover_) mover_->Follow(plan_, now);
  const TimeNs began = clock_.Now();
  Result<const StepOutput*> output = Forward();
  TimeNs wake = kNever;
  {
    const MutexLock lock(mutex_);
    const TimeNs end = clock_.Now();
    if (!output) FailStep(output.error());
    if (output && *output != nullptr) {
      scheduler_.Measured(plan_, end - began);
      Commit(end, **output);
    }
    Publish(now, end);
    recorder_.Computed(began, end, !output);
    wake = NextWakeUp(now);
  }
  if (mover_) mover_->WriteBehind(now);
  RingBells();
  if (options_.check_integrity) CheckIntegrity();
  return HEADRACE_PLANTED(31) && !dropped_.empty() ? kNever : wake;
}

// ---- before the step -----------------------------------------------------------------------------------------------

void Engine::DropCancelledAndLate(TimeNs now) {
  dropped_.clear();
  scheduler_.queue().Expired(now, &dropped_);
  for (int32_t slot : dropped_) FailExpired(*by_slot_[static_cast<size_t>(slot)], now);
  for (int32_t slot : slots_) {
    Active& active = *by_slot_[static_cast<size_t>(slot)];
    if (active.finished) continue;
    if (active.stream->cancelled_.load(std::memory_order_acquire) &&
        !(HEADRACE_PLANTED(35) && active.generated() > 0)) {
      active.finished = true;
      recorder_.Cancelled(active.stream->id());
      stats_.cancelled.fetch_add(1, std::memory_order_relaxed);
    } else if (active.request->finish_before <= now) {
      recorder_.Expired(active.stream->id());
      Fail(active, {ErrorCode::kDeadlineExceeded, "The request took longer than it may and was ended.", {}, 0});
    }
  }
  dropped_.clear();
  for (int32_t slot : slots_) {
    if (by_slot_[static_cast<size_t>(slot)]->finished) dropped_.push_back(slot);
  }
  for (int32_t slot : dropped_) Drop(slot);
}

void Engine::FailExpired(Active& active, TimeNs now) {
  recorder_.Expired(active.stream->id());
  const QueueSpec& place = scheduler_.queue().spec(active.slot);
  if (place.deadline <= now) {
    return Fail(active, {ErrorCode::kDeadlineExceeded,
                         "The deadline passed while the request waited, so it was not started. Allow more time, or "
                         "come back when less is going on.",
                         "deadline", 0});
  }
  Error error{ErrorCode::kOverloaded,
              "The request waited longer than the server's --queue-timeout allows and was not started. Retry later.",
              {},
              0};
  const ServiceRates rates = meter_.Rates(scheduler_.free_places());
  const TimeNs ttft = PredictTtft(scheduler_.queue().Ahead(place), place.remaining_tokens, rates);
  error.retry_after_ms = std::clamp(ttft, kNsPerSecond, kLongestRetryAfter) / kNsPerMs;
  Fail(active, std::move(error));
}

void Engine::Drop(int32_t slot) {
  if (mover_) mover_->Forget(slot);
  const Active& active = *by_slot_[static_cast<size_t>(slot)];
  recorder_.Ended(active.stream->id(), active.chain ? &*active.chain : nullptr, active.generated(), active.failed);
  scheduler_.Remove(slot);
  slots_.erase(std::find(slots_.begin(), slots_.end(), slot));
  by_slot_[static_cast<size_t>(slot)].reset();
  if (!HEADRACE_PLANTED(36)) inside_.fetch_sub(1, std::memory_order_relaxed);
}

// ---- build ---------------------------------------------------------------------------------------------------------

void Engine::Build() {
  input_.Clear();
  for (const PlannedSpan& planned : plan_.spans) BuildSpan(planned);
}

void Engine::BuildSpan(const PlannedSpan& planned) {
  Active& active = *by_slot_[static_cast<size_t>(planned.slot)];
  const EngineRequest& r = *active.request;
  active.sampled = 0;
  const auto first_row = static_cast<int32_t>(input_.token_ids.size());
  const auto span_index = static_cast<int32_t>(input_.spans.size());
  const std::span<const int32_t> blocks = scheduler_.blocks(planned.slot);
  input_.spans.push_back({active.stream->id(), first_row, planned.rows, static_cast<int32_t>(planned.first_position),
                          static_cast<int32_t>(r.prompt.size()), static_cast<int32_t>(input_.blocks.size()),
                          static_cast<int32_t>(blocks.size())});
  input_.blocks.insert(input_.blocks.end(), blocks.begin(), blocks.end());
  const auto first =
      active.tokens.begin() + planned.first_position + (HEADRACE_PLANTED(33) && planned.rows == 1 ? -1 : 0);
  const int32_t known = planned.rows - planned.drafts;
  input_.token_ids.insert(input_.token_ids.end(), first, first + known);
  input_.token_ids.insert(input_.token_ids.end(), active.drafts.begin(), active.drafts.begin() + planned.drafts);
  if (r.prompt_logprobs) {
    const int64_t last = std::min(planned.first_position + planned.rows, static_cast<int64_t>(r.prompt.size()) - 1);
    for (int64_t p = std::max(planned.first_position, active.logits_from); p < last; ++p) {
      AddSample(active, first_row + static_cast<int32_t>(p - planned.first_position), span_index,
                r.prompt[static_cast<size_t>(p + 1)], 0);
    }
  }
  if (!planned.samples || active.max_tokens == 0) return;
  AddSample(active, first_row + known - 1, span_index, -1, active.tokens.size());
  AddDraftSamples(active, planned, first_row + known - 1, span_index);
}

void Engine::AddSample(const Active& active, int32_t row, int32_t span, int32_t target, uint64_t position) {
  const std::span<const TokenAdjustment> entries =
      target >= 0 ? std::span<const TokenAdjustment>() : active.adjustments.entries();
  input_.samples.push_back({row, span, target, active.request->top_logprobs, position,
                            static_cast<int32_t>(input_.adjustments.size()), static_cast<int32_t>(entries.size()),
                            active.request->sampling});
  input_.adjustments.insert(input_.adjustments.end(), entries.begin(), entries.end());
  if (target >= 0 || active.mask.empty()) return;
  input_.samples.back().first_mask_word = static_cast<int32_t>(input_.masks.size());
  input_.masks.insert(input_.masks.end(), active.mask.begin(), active.mask.end());
}

Result<const StepOutput*> Engine::Forward() {
  if (plan_.spans.empty()) return nullptr;
  const TimeNs began = clock_.Now();
  const Status submitted = executor_.Submit(input_);
  if (!submitted) return std::unexpected(submitted.error());
  Result<const StepOutput*> output = executor_.Wait();
  if (mover_ && 2 * plan_.prompt_rows > plan_.rows) mover_->CountStep(clock_.Now() - began, plan_.rows);
  return output;
}

// ---- commit --------------------------------------------------------------------------------------------------------

void Engine::Commit(TimeNs now, const StepOutput& output) {
  for (const PlannedSpan& span : plan_.spans) CommitSpan(span, now);
  for (size_t i = 0; i < input_.samples.size(); ++i) CommitSample(input_.samples[i], output.results[i], now);
  dropped_.clear();
  for (const PlannedSpan& span : plan_.spans) EndSpan(span);
  for (int32_t slot : dropped_) Drop(slot);
}

void Engine::CommitSpan(const PlannedSpan& span, TimeNs now) {
  Active& active = *by_slot_[static_cast<size_t>(span.slot)];
  if (active.stream->stamps_.started == 0) active.stream->stamps_.started = now;
  stats_.prompt_tokens.fetch_add(
      static_cast<uint64_t>(std::clamp<int64_t>(active.stream->prompt_tokens() - span.first_position, 0, span.rows)),
      std::memory_order_relaxed);
  active.stream->cached_tokens_ = scheduler_.cached_tokens(span.slot);
  if (span.samples && active.max_tokens == 0) Finish(active, EndReason::kLength);
}

void Engine::CommitSample(const StepSample& sample, const SampleResult& result, TimeNs now) {
  Active& active = *by_slot_[static_cast<size_t>(plan_.spans[static_cast<size_t>(sample.span)].slot)];
  if (sample.target >= 0) {
    CHECK(active.stream->logprobs_->Push(result));
    ++active.logits_from;
    return;
  }
  // A row counts if what it computed is the sequence: with a draft, if that is what the row before it has drawn.
  const bool follows = sample.position == active.tokens.size() &&
                       input_.token_ids[static_cast<size_t>(sample.row)] == active.tokens.back();
  if (!follows || active.finished) return;
  ++active.sampled;
  CommitToken(active, result, now);
}

void Engine::EndSpan(const PlannedSpan& span) {
  Active& active = *by_slot_[static_cast<size_t>(span.slot)];
  const int32_t accepted = std::max(active.sampled - 1, 0);
  scheduler_.Advance(span, span.samples && active.max_tokens > 0, accepted);
  CountDrafts(span, accepted);
  if (!active.failed && !HEADRACE_PLANTED(32)) scheduler_.Publish(span.slot);
  if (!active.finished) return;
  if (!active.failed) KeepAnswer(active);
  dropped_.push_back(span.slot);
}

void Engine::CommitToken(Active& active, const SampleResult& result, TimeNs now) {
  const EngineRequest& r = *active.request;
  EngineStamps& stamps = active.stream->stamps_;
  if (stamps.first_token == 0) stamps.first_token = now;
  stamps.last_token = now;
  if (result.token < 0)
    return Fail(active, {ErrorCode::kInternal, "The model's executor failed on this request.", {}, 0});
  const EndReason end = EndOf(active, result.token);
  if (end != EndReason::kNone) return Finish(active, end);

  active.tokens.push_back(result.token);
  if (active.lookup != nullptr) active.lookup->Append(result.token, acceptance_);
  stats_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
  if (r.sampling.NeedsHistory()) {
    TokenAdjustment& entry = active.adjustments.At(result.token);
    entry.seen = true;
    ++entry.output_count;
  }
  if (!active.end_bans.empty() && active.generated() == r.min_tokens) {
    for (int32_t token : active.end_bans) active.adjustments.At(token).bias = 0;
    for (const auto& [token, bias] : r.logit_bias) active.adjustments.At(token).bias = bias;
  }
  TokenEvent event{result.token, 0, EndReason::kNone};
  MatchStops(active, result.token, &event);
  if (event.finish == EndReason::kNone && r.grammar != nullptr) {
    if (Status followed = FollowGrammar(active, result.token, &event); !followed)
      return Fail(active, std::move(followed).error());
  }
  if (event.finish == EndReason::kNone && active.generated() >= active.max_tokens + (HEADRACE_PLANTED(34) ? 1 : 0)) {
    event.finish = EndReason::kLength;
    event.released_bytes = static_cast<uint32_t>(active.text_bytes);
  }
  if (r.top_logprobs >= 0) CHECK(active.stream->logprobs_->Push(result));
  Push(active, event);
}

EndReason Engine::EndOf(const Active& active, int32_t token) const {
  const EngineRequest& r = *active.request;
  if (std::ranges::find(r.stop_token_ids, token) != r.stop_token_ids.end()) return EndReason::kStop;
  if (r.ignore_eos && r.grammar == nullptr) return EndReason::kNone;  // nothing follows a grammar's end
  const std::span<const int32_t> ends = tokenizer_.end_of_generation();
  return std::ranges::find(ends, token) != ends.end() ? EndReason::kStop : EndReason::kNone;
}

// Takes the token, and finds what may follow it.
Status Engine::FollowGrammar(Active& active, int32_t token, TokenEvent* event) {
  Grammar& grammar = *active.grammar;
  HR_RETURN_IF_ERROR(grammar.Commit(token));
  if (!grammar.done()) return grammar.Mask(active.mask);
  event->finish = EndReason::kStop;
  event->released_bytes = static_cast<uint32_t>(active.text_bytes);
  return {};
}

void Engine::MatchStops(Active& active, int32_t token, TokenEvent* event) {
  const EngineRequest& r = *active.request;
  const std::string_view bytes =
      tokenizer_.IsControl(token) && !r.show_control ? std::string_view() : tokenizer_.TokenBytes(token);
  active.text_bytes += bytes.size();
  event->released_bytes = static_cast<uint32_t>(active.text_bytes);
  if (!r.stops) return;
  if (active.generated() < r.min_tokens) {
    active.stop_state = {.text_bytes = active.text_bytes};
    return;
  }
  const StopMatcher::Found found = r.stops->Feed(active.stop_state, bytes);
  event->released_bytes = static_cast<uint32_t>(found.release_bytes);
  if (!found.matched) return;
  event->finish = EndReason::kStop;
  if (r.include_stop) event->released_bytes = static_cast<uint32_t>(active.stop_state.text_bytes);
}

void Engine::Push(Active& active, const TokenEvent& event) {
  if (event.finish != EndReason::kNone) {
    active.finished = true;
    (event.finish == EndReason::kStop     ? stats_.finished_stop
     : event.finish == EndReason::kLength ? stats_.finished_length
                                          : stats_.finished_error)
        .fetch_add(1, std::memory_order_relaxed);
  }
  CHECK(active.stream->events_.Push(event));
  Doorbell* bell = active.stream->consumer_bell_;
  if (bell != nullptr && std::find(bells_.begin(), bells_.end(), bell) == bells_.end()) bells_.push_back(bell);
}

void Engine::Finish(Active& active, EndReason reason) {
  Push(active, {-1, static_cast<uint32_t>(active.text_bytes), reason});
}

void Engine::Fail(Active& active, Error error) {
  active.failed = true;
  active.stream->error_ = std::move(error);
  Finish(active, EndReason::kError);
}

void Engine::FailStep(const Error& error) {
  for (const PlannedSpan& span : plan_.spans) Fail(*by_slot_[static_cast<size_t>(span.slot)], error);
  for (const PlannedSpan& span : plan_.spans)
    if (!HEADRACE_PLANTED(37) || span.slot != plan_.spans.back().slot) Drop(span.slot);
}

// ---- after the step ------------------------------------------------------------------------------------------------

void Engine::RingBells() {
  for (Doorbell* bell : bells_) bell->Ring();
  bells_.clear();
}

void Engine::Publish(TimeNs began, TimeNs ended) {
  if (!plan_.spans.empty()) {
    stats_.steps.fetch_add(1, std::memory_order_relaxed);
    stats_.rows.fetch_add(static_cast<uint64_t>(plan_.rows), std::memory_order_relaxed);
    meter_.OnStep({.duration = ended - began,
                   .prompt_rows = plan_.prompt_rows,
                   .starts = plan_.starts,
                   .rows_short = plan_.rows_short,
                   .places_short = plan_.places_short});
  }
  Climb(ended);
  stats_.preemptions.store(scheduler_.preemptions(), std::memory_order_relaxed);
  stats_.recomputed_tokens.store(scheduler_.recomputed_tokens(), std::memory_order_relaxed);
  stats_.running.store(scheduler_.running(), std::memory_order_relaxed);
  stats_.waiting.store(scheduler_.waiting(), std::memory_order_relaxed);
  stats_.prefix_asked_tokens.store(scheduler_.prefix_counts().asked, std::memory_order_relaxed);
  stats_.prefix_hit_tokens.store(scheduler_.prefix_counts().hits, std::memory_order_relaxed);
  stats_.pinned_blocks.store(scheduler_.pool().pinned_blocks(), std::memory_order_relaxed);
  stats_.pins_refused.store(scheduler_.pool().pins_refused(), std::memory_order_relaxed);
  stats_.prefix_evictions.store(scheduler_.pool().evictions(), std::memory_order_relaxed);
  stats_.kv_blocks_cached.store(scheduler_.pool().cached_blocks(), std::memory_order_relaxed);
  stats_.kv_blocks_used.store(scheduler_.pool().used_blocks(), std::memory_order_relaxed);
  stats_.waiting_tokens.store(scheduler_.waiting_tokens(), std::memory_order_relaxed);
  stats_.last_progress.store(ended, std::memory_order_relaxed);
}

// Up or down the ladder, by the wait behind all that is in line but batch work.
void Engine::Climb(TimeNs now) {
  LineAhead ahead;
  for (Band band : {Band::kCritical, Band::kHigh, Band::kNormal}) {
    ahead.tokens += scheduler_.queue().tokens_in_line(band);
    ahead.requests += scheduler_.queue().waiting(band);
  }
  brown_out_.Observe(PredictTtft(ahead, 1, meter_.Rates(scheduler_.free_places())), now);
  scheduler_.RestBatch(brown_out_.AtLeast(Rung::kNoBatch));
  stats_.rung.store(static_cast<int32_t>(brown_out_.rung()), std::memory_order_relaxed);
  for (size_t i = 0; i < kRungs; ++i) stats_.brown_outs[i].store(brown_out_.climbed()[i], std::memory_order_relaxed);
}

// When restores are all there is to do, the disk tells.
TimeNs Engine::NextWakeUp(TimeNs now) const {
  if (mover_ && plan_.spans.empty() && scheduler_.restoring() > 0) return mover_->NextWakeUp(now);
  return scheduler_.HasWork() ? now : kNever;
}

void Engine::CheckIntegrity() const {
  const MutexLock lock(mutex_);
  scheduler_.CheckIntegrity();
  CHECK_EQ(static_cast<size_t>(scheduler_.running() + scheduler_.waiting()), slots_.size());
  for (int32_t slot : slots_) {
    const Active& active = *by_slot_[static_cast<size_t>(slot)];
    CHECK_EQ(active.slot, slot);
    CHECK(!active.finished);
    CHECK_LE(active.generated(), active.max_tokens);
  }
}

// ---- thread --------------------------------------------------------------------------------------------------------

EngineThread::EngineThread(Engine& engine, const Clock& clock)
    : engine_(engine), clock_(clock), thread_([this] { Main(); }) {}

EngineThread::~EngineThread() {
  stop_.store(true);
  engine_.bell().Ring();
  thread_.join();
}

void EngineThread::Main() {
  while (!stop_.load(std::memory_order_acquire)) {
    const TimeNs next = engine_.Step(clock_.Now());
    const TimeNs wait = next == kNever ? -1 : next - clock_.Now();
    if (next == kNever || wait > 0) engine_.bell().Wait(wait);
  }
}

}  // namespace headrace
