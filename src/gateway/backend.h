// What stands behind the pipeline: the engine of this process (LocalBackend) or, later, another server. Calls and
// events on the loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/request.h"
#include "api/response.h"
#include "base/clock.h"
#include "base/result.h"
#include "gateway/identity.h"
#include "queueing/priority.h"
#include "text/grammar.h"

namespace headrace {

// A request after prepare: everything that the backend needs, as ids.
struct PreparedRequest {
  GenerationRequest api;
  Identity identity;
  std::string request_id;
  std::vector<std::vector<int32_t>> prompts;  // one for chat; prompts of a completion in order
  std::shared_ptr<const Grammar> grammar;     // of api.constraint; null: none
  uint64_t seed = 0;                          // drawn when the client gave none; choice i uses seed + i
  Urgency urgency;
  TimeNs deadline = kNever;  // the client's: of no use later
  TimeNs start_before = kNever;
  TimeNs finish_before = kNever;

  // The backend generates candidates, prompt-major: candidate = prompt * best_of + i. They are the choices, unless they
  // are ranked: then the pipeline chooses n of each prompt and numbers them prompt * n + i.
  int candidates() const { return static_cast<int>(prompts.size()) * api.best_of; }
  bool ranked() const { return api.best_of > api.n; }
  bool wants_logprobs() const { return api.logprobs || ranked(); }
  int choices() const { return static_cast<int>(prompts.size()) * api.n; }
  int64_t prompt_tokens() const {
    int64_t sum = 0;
    for (const auto& prompt : prompts) sum += static_cast<int64_t>(prompt.size());
    return sum;
  }
};

// New text of one candidate or choice: whole characters only.
struct ChoiceDelta {
  int index = 0;
  std::string text;
  std::vector<TokenLogprob> logprobs;  // of the tokens since the last delta, when wanted; an echoed prompt's first
  int tokens = 0;                      // that this delta stands for
};

class BackendSink {
 public:
  virtual ~BackendSink() = default;
  virtual void OnDelta(ChoiceDelta delta) = 0;
  virtual void OnChoiceEnd(int index, FinishReason reason) = 0;
  // After the last choice has ended, with the prompt tokens that need not be computed. Nothing follows.
  virtual void OnEnd(int64_t cached_tokens) = 0;
  // Instead of OnEnd. Nothing follows.
  virtual void OnError(const Error& error) = 0;
};

// One request under way. Dropping it cancels it.
class BackendCall {
 public:
  virtual ~BackendCall() = default;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // An error refuses the request at once; nothing was started. `request` and `sink` must outlive the call; events come
  // later, never from inside Start.
  virtual Result<std::unique_ptr<BackendCall>> Start(const PreparedRequest& request, BackendSink& sink) = 0;
};

}  // namespace headrace
