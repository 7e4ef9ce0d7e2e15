// How a request comes in, on the caller's thread: what it needs is allocated outside the lock, then it is judged and
// joins the line under it.
#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "engine/active.h"

namespace headrace {
namespace {

// Of tenant and prompt: a caller that comes back is known by it. 0 is "not to be known".
uint64_t FingerprintOf(uint64_t tenant, std::span<const int32_t> prompt) {
  uint64_t hash = SplitMix64(tenant);
  for (int32_t token : prompt) hash = SplitMix64(hash ^ static_cast<uint32_t>(token));
  return std::max<uint64_t>(hash, 1);
}

// The first whole minute that is not before now + time; the last of the clock where that is later, as a log of
// decisions may have it.
TimeNs WholeMinutes(TimeNs now, TimeNs time) {
  const TimeNs last = kNever / kNsPerMinute * kNsPerMinute;
  const TimeNs end = std::min(now, last) + std::min(time, last - std::min(now, last));
  return end / kNsPerMinute * kNsPerMinute + (end % kNsPerMinute > 0 ? kNsPerMinute : 0);
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

Result<std::shared_ptr<EngineStream>> Engine::Submit(std::unique_ptr<EngineRequest> request, Doorbell* bell) {
  CHECK(!request->prompt.empty());
  const auto prompt = static_cast<int64_t>(request->prompt.size());
  {
    const MutexLock lock(mutex_);
    const int64_t allowed = brown_out_.MaxTokens(request->place.band, request->max_tokens);
    if (allowed < request->max_tokens) stats_.shortened.fetch_add(1, std::memory_order_relaxed);
    request->max_tokens = scheduler_.ClampedMaxTokens(prompt, allowed);
    if (scheduler_.ClampedMaxTokens(prompt, INT64_MAX) < 1) return headrace::Fail(scheduler_.NeverFits(prompt));
  }
  std::unique_ptr<Active> active = MakeActive(std::move(request), bell);
  if (active->request->grammar != nullptr) HR_RETURN_IF_ERROR(BeginGrammar(*active));
  const EngineRequest& r = *active->request;
  SequenceSpec spec{.prompt_tokens = prompt,
                    .max_tokens = active->max_tokens,
                    .prompt_logits = r.prompt_logprobs,
                    .place = r.place,
                    .chain = active->chain ? &*active->chain : nullptr};
  spec.place.fingerprint = FingerprintOf(r.place.tenant, r.prompt);
  std::shared_ptr<EngineStream> stream = active->stream;
  {
    const MutexLock lock(mutex_);
    const TimeNs now = clock_.Now();
    spec.place.arrival = stream->stamps_.submitted = now;
    if (r.keep_prompt > 0 && spec.chain != nullptr) spec.keep_until = WholeMinutes(now, r.keep_prompt);
    // Progress counts from the moment that there is work: an engine that slept for an hour has not been stuck for one.
    if (!scheduler_.HasWork()) stats_.last_progress.store(now, std::memory_order_relaxed);
    HR_RETURN_IF_ERROR(Admit(spec, now));
    HR_ASSIGN_OR_RETURN(active->slot, scheduler_.Add(spec));
    slots_.push_back(active->slot);
    recorder_.Arrived(stream->id(), spec, r.finish_before);
    by_slot_[static_cast<size_t>(active->slot)] = std::move(active);
    inside_.fetch_add(1, std::memory_order_relaxed);
  }
  bell_.Ring();
  return stream;
}

// A refusal that queueing/ has the reasons for.
Status Engine::Admit(const SequenceSpec& spec, TimeNs now) {
  const QueueSpec place = scheduler_.PlaceOf(spec);
  const ServiceRates rates = meter_.Rates(scheduler_.free_places());
  const uint64_t jitter = KeyedRandom(spec.place.fingerprint, static_cast<uint64_t>(now));
  const bool shed = brown_out_.Sheds(place.band);
  const AdmissionAnswer answer = admission_.Judge(scheduler_.queue(), place, rates, now, jitter, shed);
  if (answer.verdict == Verdict::kAdmit) return {};
  stats_.refused[static_cast<size_t>(answer.verdict)].fetch_add(1, std::memory_order_relaxed);
  return headrace::Fail(RefusalError(answer, place, now));
}

Status Engine::BeginGrammar(Active& active) {
  HR_ASSIGN_OR_RETURN(active.grammar, active.request->grammar->Clone());
  active.mask.resize(MaskWords(std::max(description_.vocab_size, tokenizer_.vocab_size())));
  return active.grammar->Mask(active.mask);
}

std::unique_ptr<Engine::Active> Engine::MakeActive(std::unique_ptr<EngineRequest> request, Doorbell* bell) {
  const auto prompt = static_cast<int64_t>(request->prompt.size());
  auto active = std::make_unique<Active>();
  active->max_tokens = request->max_tokens;
  active->tokens.reserve(static_cast<size_t>(prompt + active->max_tokens));
  active->tokens = request->prompt;
  if (options_.prefix_cache) {
    const BlockName root = RootName(options_.cache_key, description_.fingerprint, "", request->cache_namespace);
    active->chain.emplace(options_.cache_key, root, active->tokens, prompt + active->max_tokens, options_.naming);
  }
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
  PrepareDrafts(*active);
  return active;
}

}  // namespace headrace
