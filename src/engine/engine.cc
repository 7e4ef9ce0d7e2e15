#include "engine/engine.h"

#include <algorithm>

#include "base/check.h"
#include "engine/active.h"

namespace headrace {
namespace {

// Adjustments of one step that are reserved for: beyond this many the vector grows once and keeps its size.
constexpr size_t kAdjustmentsReserved = 1 << 16;

SchedulerLimits LimitsOf(const ExecutorDescription& d, const EngineOptions& options) {
  return {.context = d.context,
          .batch_tokens_max = d.rows_max,
          .shared_tokens_max = std::min(options.shared_tokens_max, d.rows_max),
          .logit_rows_max = d.logit_rows_max,
          .sequences_max = d.sequences_max,
          .waiting_max = options.waiting_max,
          .prefix_cache = options.prefix_cache};
}

}  // namespace

EngineStream::EngineStream(uint64_t id, int64_t prompt_tokens, size_t events_max, size_t logprobs_max,
                           Doorbell* engine_bell, Doorbell* consumer_bell)
    : id_(id),
      prompt_tokens_(prompt_tokens),
      events_(events_max),
      engine_bell_(engine_bell),
      consumer_bell_(consumer_bell) {
  if (logprobs_max > 0) logprobs_ = std::make_unique<SpscRing<SampleResult>>(logprobs_max);
}

void EngineStream::Cancel() {
  cancelled_.store(true, std::memory_order_release);
  engine_bell_->Ring();
}

Engine::Engine(Executor& executor, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options)
    : executor_(executor),
      tokenizer_(tokenizer),
      clock_(clock),
      description_(executor.Describe()),
      options_(options),
      scheduler_(LimitsOf(description_, options), description_.kv_blocks),
      arrivals_(static_cast<size_t>(options.waiting_max + description_.sequences_max)) {
  const auto slots = arrivals_.capacity();
  arrived_.reserve(slots);
  by_slot_.resize(slots);
  slots_.reserve(slots);
  dropped_.reserve(slots);
  bells_.reserve(slots);
  scheduler_.ReservePlan(&plan_);
  const auto sequences = static_cast<size_t>(description_.sequences_max);
  input_.token_ids.reserve(static_cast<size_t>(description_.rows_max));
  input_.spans.reserve(sequences);
  // Sequences that share blocks each name them.
  input_.blocks.reserve(
      sequences * static_cast<size_t>(std::min<int64_t>(description_.kv_blocks, BlocksFor(description_.context))));
  input_.samples.reserve(static_cast<size_t>(description_.logit_rows_max));
  input_.adjustments.reserve(kAdjustmentsReserved);
}

Engine::~Engine() = default;

Result<std::shared_ptr<EngineStream>> Engine::Submit(std::unique_ptr<EngineRequest> request, Doorbell* bell) {
  CHECK(!request->prompt.empty());
  const auto prompt = static_cast<int64_t>(request->prompt.size());
  if (scheduler_.ClampedMaxTokens(prompt, INT64_MAX) < 1) {
    return headrace::Fail(scheduler_.NeverFits(prompt));
  }
  // Progress counts from the moment that there is work: an engine that slept for an hour has not been stuck for one.
  if (inside() == 0) stats_.last_progress.store(clock_.Now(), std::memory_order_relaxed);
  if (inside_.fetch_add(1, std::memory_order_relaxed) >= static_cast<int32_t>(arrivals_.capacity())) {
    inside_.fetch_sub(1, std::memory_order_relaxed);
    Error error{
        ErrorCode::kOverloaded, "The server is full: every place to run and to wait is taken. Retry later.", {}, 0};
    error.retry_after_ms = RetryAfterMs(stats_.waiting_tokens.load(std::memory_order_relaxed), TokensPerSecond());
    return headrace::Fail(std::move(error));
  }
  auto active = std::make_unique<Active>();
  active->max_tokens = scheduler_.ClampedMaxTokens(prompt, request->max_tokens);
  active->tokens.reserve(static_cast<size_t>(prompt + active->max_tokens));
  active->tokens = request->prompt;
  if (options_.prefix_cache) {
    const BlockName root = RootName(options_.cache_key, description_.fingerprint, "", request->cache_namespace);
    active->chain.emplace(options_.cache_key, root, active->tokens, prompt + active->max_tokens);
  }
  active->submitted = clock_.Now();
  const auto all = static_cast<size_t>(prompt + active->max_tokens);
  const std::span<const int32_t> ends = tokenizer_.end_of_generation();
  if (request->min_tokens > 0) {
    active->end_bans = request->stop_token_ids;
    if (!request->ignore_eos) active->end_bans.insert(active->end_bans.end(), ends.begin(), ends.end());
  }
  if (request->sampling.NeedsHistory() || !request->logit_bias.empty() || !active->end_bans.empty()) {
    const size_t history =
        request->sampling.NeedsHistory() ? std::min(all, static_cast<size_t>(description_.vocab_size)) : 0;
    active->adjustments = AdjustmentTable(history + request->logit_bias.size() + active->end_bans.size());
    for (const auto& [token, bias] : request->logit_bias) active->adjustments.At(token).bias = bias;
    for (int32_t token : active->end_bans) active->adjustments.At(token).bias = kBanBias;
    if (request->sampling.NeedsHistory()) {
      for (int32_t token : request->prompt) active->adjustments.At(token).seen = true;
    }
  }
  const size_t logprobs_max = request->top_logprobs >= 0 ? static_cast<size_t>(active->max_tokens) +
                                                               (request->prompt_logprobs ? request->prompt.size() : 0)
                                                         : 0;
  active->stream.reset(new EngineStream(next_id_.fetch_add(1), prompt, static_cast<size_t>(active->max_tokens) + 1,
                                        logprobs_max, &bell_, bell));
  active->request = std::move(request);
  std::shared_ptr<EngineStream> stream = active->stream;
  CHECK(arrivals_.Push({std::move(active)}));  // as many places as inside_ lets in
  bell_.Ring();
  return stream;
}

TimeNs Engine::Step(TimeNs now) {
  TakeIn(now);
  scheduler_.Plan(now, &plan_);
  if (!plan_.spans.empty()) {
    Build();
    Status submitted = executor_.Submit(input_);
    Result<const StepOutput*> output =
        submitted ? executor_.Wait() : Result<const StepOutput*>(std::unexpected(submitted.error()));
    if (output) {
      Commit(clock_.Now(), **output);
    } else {
      FailStep(output.error());
    }
  }
  RingBells();
  Publish(now);
  if (options_.check_integrity) CheckIntegrity();
  return NextWakeUp(now);
}

// ---- take in -------------------------------------------------------------------------------------------------------

void Engine::TakeIn(TimeNs now) {
  DropCancelledAndLate(now);
  TakeArrivals(now);
}

void Engine::TakeArrivals(TimeNs now) {
  arrivals_.Drain(arrived_);
  for (Arrival& arrival : arrived_) {
    Active& active = *arrival.active;
    const EngineRequest& r = *active.request;
    const Result<int32_t> slot = scheduler_.Add({.prompt_tokens = static_cast<int64_t>(r.prompt.size()),
                                                 .max_tokens = active.max_tokens,
                                                 .prompt_logits = r.prompt_logprobs,
                                                 .band = r.band,
                                                 .arrival = active.submitted,
                                                 .start_before = r.start_before,
                                                 .chain = active.chain ? &*active.chain : nullptr});
    CHECK(slot.has_value());  // Submit let in no more than there are slots, and nothing that cannot fit
    active.slot = *slot;
    slots_.push_back(*slot);
    by_slot_[static_cast<size_t>(*slot)] = std::move(arrival.active);
  }
  arrived_.clear();
}

void Engine::DropCancelledAndLate(TimeNs now) {
  dropped_.clear();
  scheduler_.Expired(now, &dropped_);
  for (int32_t slot : dropped_) {
    Error error{ErrorCode::kOverloaded,
                "The request waited longer than the server's --queue-timeout allows and was not started. Retry later.",
                {},
                0};
    error.retry_after_ms = RetryAfterMs(stats_.waiting_tokens.load(std::memory_order_relaxed), TokensPerSecond());
    Fail(*by_slot_[static_cast<size_t>(slot)], std::move(error));
  }
  for (int32_t slot : slots_) {
    Active& active = *by_slot_[static_cast<size_t>(slot)];
    if (active.finished) continue;
    if (active.stream->cancelled_.load(std::memory_order_acquire)) {
      active.finished = true;
      stats_.cancelled.fetch_add(1, std::memory_order_relaxed);
    } else if (active.request->finish_before <= now) {
      Fail(active, {ErrorCode::kDeadlineExceeded, "The request took longer than it may and was ended.", {}, 0});
    }
  }
  dropped_.clear();
  for (int32_t slot : slots_) {
    if (by_slot_[static_cast<size_t>(slot)]->finished) dropped_.push_back(slot);
  }
  for (int32_t slot : dropped_) Drop(slot);
}

void Engine::Drop(int32_t slot) {
  scheduler_.Remove(slot);
  slots_.erase(std::find(slots_.begin(), slots_.end(), slot));
  by_slot_[static_cast<size_t>(slot)].reset();
  inside_.fetch_sub(1, std::memory_order_relaxed);
}

// ---- build ---------------------------------------------------------------------------------------------------------

void Engine::Build() {
  input_.Clear();
  for (const PlannedSpan& planned : plan_.spans) BuildSpan(planned);
}

void Engine::BuildSpan(const PlannedSpan& planned) {
  const Active& active = *by_slot_[static_cast<size_t>(planned.slot)];
  const EngineRequest& r = *active.request;
  const auto first_row = static_cast<int32_t>(input_.token_ids.size());
  const auto span_index = static_cast<int32_t>(input_.spans.size());
  const std::span<const int32_t> blocks = scheduler_.blocks(planned.slot);
  input_.spans.push_back({active.stream->id(), first_row, planned.rows, static_cast<int32_t>(planned.first_position),
                          static_cast<int32_t>(r.prompt.size()), static_cast<int32_t>(input_.blocks.size()),
                          static_cast<int32_t>(blocks.size())});
  input_.blocks.insert(input_.blocks.end(), blocks.begin(), blocks.end());
  const auto first = active.tokens.begin() + planned.first_position;
  input_.token_ids.insert(input_.token_ids.end(), first, first + planned.rows);
  if (r.prompt_logprobs) {
    const int64_t last = std::min(planned.first_position + planned.rows, static_cast<int64_t>(r.prompt.size()) - 1);
    for (int64_t p = std::max(planned.first_position, active.logits_from); p < last; ++p) {
      AddSample(active, first_row + static_cast<int32_t>(p - planned.first_position), span_index,
                r.prompt[static_cast<size_t>(p + 1)], 0);
    }
  }
  if (planned.samples && active.max_tokens > 0)
    AddSample(active, first_row + planned.rows - 1, span_index, -1, active.tokens.size());
}

void Engine::AddSample(const Active& active, int32_t row, int32_t span, int32_t target, uint64_t position) {
  const std::span<const TokenAdjustment> entries =
      target >= 0 ? std::span<const TokenAdjustment>() : active.adjustments.entries();
  input_.samples.push_back({row, span, target, active.request->top_logprobs, position,
                            static_cast<int32_t>(input_.adjustments.size()), static_cast<int32_t>(entries.size()),
                            active.request->sampling});
  input_.adjustments.insert(input_.adjustments.end(), entries.begin(), entries.end());
}

// ---- commit --------------------------------------------------------------------------------------------------------

void Engine::Commit(TimeNs now, const StepOutput& output) {
  for (const PlannedSpan& span : plan_.spans) {
    Active& active = *by_slot_[static_cast<size_t>(span.slot)];
    if (active.stream->stamps_.started == 0) active.stream->stamps_.started = now;
    stats_.prompt_tokens.fetch_add(
        static_cast<uint64_t>(std::clamp<int64_t>(active.stream->prompt_tokens() - span.first_position, 0, span.rows)),
        std::memory_order_relaxed);
    active.stream->cached_tokens_ = scheduler_.cached_tokens(span.slot);
    scheduler_.Advance(span, span.samples && active.max_tokens > 0);
    if (span.samples && active.max_tokens == 0) Finish(active, EndReason::kLength);
  }
  for (size_t i = 0; i < input_.samples.size(); ++i) {
    const StepSample& sample = input_.samples[i];
    Active& active = *by_slot_[static_cast<size_t>(plan_.spans[static_cast<size_t>(sample.span)].slot)];
    const SampleResult& result = output.results[i];
    if (sample.target >= 0) {
      CHECK(active.stream->logprobs_->Push(result));
      ++active.logits_from;
    } else {
      CommitToken(active, result, now);
    }
  }
  dropped_.clear();
  for (const PlannedSpan& span : plan_.spans) {
    const Active& active = *by_slot_[static_cast<size_t>(span.slot)];
    if (!active.failed) scheduler_.Publish(span.slot);
    if (active.finished) dropped_.push_back(span.slot);
  }
  for (int32_t slot : dropped_) Drop(slot);
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
  if (event.finish == EndReason::kNone && active.generated() >= active.max_tokens) {
    event.finish = EndReason::kLength;
    event.released_bytes = static_cast<uint32_t>(active.text_bytes);
  }
  if (r.top_logprobs >= 0) CHECK(active.stream->logprobs_->Push(result));
  Push(active, event);
}

EndReason Engine::EndOf(const Active& active, int32_t token) const {
  const EngineRequest& r = *active.request;
  if (std::ranges::find(r.stop_token_ids, token) != r.stop_token_ids.end()) return EndReason::kStop;
  if (r.ignore_eos) return EndReason::kNone;
  const std::span<const int32_t> ends = tokenizer_.end_of_generation();
  return std::ranges::find(ends, token) != ends.end() ? EndReason::kStop : EndReason::kNone;
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
  for (const PlannedSpan& span : plan_.spans) Drop(span.slot);
}

// ---- after the step ------------------------------------------------------------------------------------------------

void Engine::RingBells() {
  for (Doorbell* bell : bells_) bell->Ring();
  bells_.clear();
}

void Engine::Publish(TimeNs now) {
  if (!plan_.spans.empty()) {
    stats_.steps.fetch_add(1, std::memory_order_relaxed);
    stats_.rows.fetch_add(static_cast<uint64_t>(plan_.rows), std::memory_order_relaxed);
    rate_rows_ += static_cast<uint64_t>(plan_.rows);
  }
  const TimeNs after = clock_.Now();
  if (rate_since_ == 0) rate_since_ = now;
  if (after - rate_since_ >= kNsPerSecond) {
    if (rate_rows_ > 0)
      tokens_per_second_.store(static_cast<double>(rate_rows_) * 1e9 / static_cast<double>(after - rate_since_),
                               std::memory_order_relaxed);
    rate_since_ = after;
    rate_rows_ = 0;
  }
  stats_.preemptions.store(scheduler_.preemptions(), std::memory_order_relaxed);
  stats_.running.store(scheduler_.running(), std::memory_order_relaxed);
  stats_.waiting.store(scheduler_.waiting(), std::memory_order_relaxed);
  stats_.prefix_asked_tokens.store(scheduler_.prefix_counts().asked, std::memory_order_relaxed);
  stats_.prefix_hit_tokens.store(scheduler_.prefix_counts().hits, std::memory_order_relaxed);
  stats_.prefix_evictions.store(scheduler_.pool().evictions(), std::memory_order_relaxed);
  stats_.kv_blocks_cached.store(scheduler_.pool().cached_blocks(), std::memory_order_relaxed);
  stats_.kv_blocks_used.store(scheduler_.pool().used_blocks(), std::memory_order_relaxed);
  stats_.waiting_tokens.store(scheduler_.waiting_tokens(), std::memory_order_relaxed);
  stats_.last_progress.store(after, std::memory_order_relaxed);
}

TimeNs Engine::NextWakeUp(TimeNs now) const {
  if (scheduler_.HasWork() || arrivals_.size() > 0) return now;
  return kNever;
}

void Engine::CheckIntegrity() const {
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
