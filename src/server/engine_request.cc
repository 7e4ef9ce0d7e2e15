#include "server/engine_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace headrace {

SamplingParams ToSamplingParams(const SamplingFields& fields, uint64_t seed) {
  SamplingParams p;
  p.temperature = static_cast<float>(fields.temperature);
  p.top_p = static_cast<float>(fields.top_p);
  p.min_p = static_cast<float>(fields.min_p);
  p.top_k = static_cast<int32_t>(std::min<int64_t>(fields.top_k, INT32_MAX));
  p.presence_penalty = static_cast<float>(fields.presence_penalty);
  p.frequency_penalty = static_cast<float>(fields.frequency_penalty);
  p.repetition_penalty = static_cast<float>(fields.repetition_penalty);
  p.seed = seed;
  return p;
}

Result<std::optional<StopMatcher>> StopsOf(const GenerationRequest& request) {
  if (request.stop.empty()) return std::nullopt;
  return StopMatcher::Build(request.stop);
}

// FNV-1a (Fowler, Noll, Vo). Names come from the operator's key file, so nobody can choose one that collides.
uint64_t HashOf(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

// Who may see whose cached prompts: the key's group, else its tenant, made narrower by the request's own salt. Lengths
// keep "a" with salt "bc" apart from "ab" with salt "c".
std::string CacheNamespace(const PreparedRequest& request) {
  const Identity& who = request.identity;
  const std::string& trusted = who.cache_group.empty() ? who.tenant : who.cache_group;
  return fmt::format("{}:{}:{}:{}", who.cache_group.empty() ? "tenant" : "group", trusted.size(), trusted,
                     request.api.cache_salt);
}

std::unique_ptr<EngineRequest> ToEngineRequest(const PreparedRequest& request, int candidate,
                                               const std::optional<StopMatcher>& stops) {
  const GenerationRequest& api = request.api;
  auto r = std::make_unique<EngineRequest>();
  r->prompt = request.prompts[static_cast<size_t>(candidate / api.best_of)];
  r->sampling = ToSamplingParams(api.sampling, request.seed + static_cast<uint64_t>(candidate % api.best_of));
  r->logit_bias = api.sampling.logit_bias;
  r->stops = stops;
  r->grammar = request.grammar;
  r->stop_token_ids = api.stop_token_ids;
  r->max_tokens = api.max_tokens.value_or(INT64_MAX);
  r->min_tokens = api.min_tokens;
  r->ignore_eos = api.ignore_eos;
  r->include_stop = api.include_stop_str_in_output;
  r->show_control = !api.skip_special_tokens;
  r->top_logprobs = request.wants_logprobs() ? api.top_logprobs : -1;
  r->prompt_logprobs = api.echo && api.logprobs;
  r->cache_namespace = CacheNamespace(request);
  if (request.identity.cache_retention) r->keep_prompt = api.prompt_cache_seconds * kNsPerSecond;
  r->place = {.tenant = HashOf(request.identity.tenant),
              .weight = request.identity.weight,
              .band = request.urgency.band,
              .position = request.urgency.position,
              .deadline = request.deadline,
              .start_before = request.start_before,
              .tenant_waiting_limit = request.identity.waiting_max};
  r->finish_before = request.finish_before;
  return r;
}

}  // namespace headrace
