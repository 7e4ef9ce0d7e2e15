// What goes into the engine and what comes out: EngineRequest is prepared by any thread; EngineStream is the two-sided
// object through which tokens leave. Nothing between them and the step can overflow or block: the ring holds every
// token that the request can produce.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/result.h"
#include "base/ring.h"
#include "queueing/waiting_queue.h"
#include "sampling/sampler.h"
#include "text/grammar.h"
#include "text/stop_matcher.h"

namespace headrace {

struct EngineRequest {
  std::vector<int32_t> prompt;  // not empty
  SamplingParams sampling;      // the seed is drawn already
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<StopMatcher> stops;
  // What the answer may be; null: anything. It is only cloned from. Where nothing may follow the answer ends.
  std::shared_ptr<const Grammar> grammar;
  std::vector<int32_t> stop_token_ids;
  int64_t max_tokens = INT64_MAX;  // clamped to what context and pool leave
  int64_t min_tokens = 0;          // until then no end token is drawn and no stop string matches
  bool ignore_eos = false;
  bool include_stop = false;     // a stop string that ends the answer stays in it
  bool show_control = false;     // control tokens count as text
  int top_logprobs = -1;         // < 0: no log-probabilities
  bool prompt_logprobs = false;  // also of every prompt token but the first
  std::string cache_namespace;   // requests of different ones share no blocks
  TimeNs keep_prompt = 0;        // its prompt stays cached for so long, if it can; whole minutes are kept
  // Its place in line; deadline: for the first token, start_before: the queue timeout. Tokens, arrival and fingerprint
  // are filled in by the engine.
  QueueSpec place;
  TimeNs finish_before = kNever;  // ended (kDeadlineExceeded) if it still runs then
};

enum class EndReason : uint8_t { kNone, kStop, kLength, kError };

struct TokenEvent {
  int32_t token = -1;           // -1: no token, only the finish
  uint32_t released_bytes = 0;  // bytes of the whole answer that may be shown now
  EndReason finish = EndReason::kNone;
};

// Moments of one request, by the engine's clock; 0: not reached.
struct EngineStamps {
  TimeNs submitted = 0, started = 0, first_token = 0, last_token = 0;
};

class EngineStream {
 public:
  // Consumer (one thread). False when nothing new is there. After an event with a finish nothing follows.
  bool Pop(TokenEvent& event) { return events_.Pop(event); }
  // One per event with a token, and before them one per prompt token but the first with prompt_logprobs.
  bool PopLogprobs(SampleResult& result) { return logprobs_ != nullptr && logprobs_->Pop(result); }
  // Any thread: the engine drops the sequence at its next step. No event follows.
  void Cancel();
  // After a finish of kError.
  const Error& error() const { return error_; }
  // After any finish.
  const EngineStamps& stamps() const { return stamps_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  // After any finish: prompt tokens that were not computed, since another request had.
  int64_t cached_tokens() const { return cached_tokens_; }
  uint64_t id() const { return id_; }

 private:
  friend class Engine;
  EngineStream(uint64_t id, int64_t prompt_tokens, size_t events_max, size_t logprobs_max, Doorbell* engine_bell,
               Doorbell* consumer_bell);

  const uint64_t id_;
  const int64_t prompt_tokens_;
  SpscRing<TokenEvent> events_;
  std::unique_ptr<SpscRing<SampleResult>> logprobs_;
  Doorbell* const engine_bell_;
  Doorbell* const consumer_bell_;  // may be null
  std::atomic<bool> cancelled_{false};
  Error error_;                // written before the finishing event
  EngineStamps stamps_;        // likewise
  int64_t cached_tokens_ = 0;  // likewise
};

}  // namespace headrace
