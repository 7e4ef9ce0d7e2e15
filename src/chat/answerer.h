// One answer at a time from a loaded model: request in, pieces of text out.
//
// One thread. While it sleeps for tokens it looks for `stop` every kStopPollNs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "api/request.h"
#include "base/clock.h"
#include "base/doorbell.h"
#include "base/result.h"
#include "engine/request.h"
#include "server/model_service.h"
#include "server/serve_options.h"

namespace headrace {

// A person takes a twentieth of a second for "at once".
constexpr int64_t kStopPollNs = 50 * kNsPerMs;

struct Answer {
  std::string text;
  EndReason end = EndReason::kNone;  // kNone: stopped
  int64_t prompt_tokens = 0, generated_tokens = 0;
  TimeNs submitted = 0, first_token = 0, last_token = 0;
};

class Answerer {
 public:
  // Blocks while loading.
  static Result<std::unique_ptr<Answerer>> Load(const ServeOptions& options, const Clock& clock);

  // `show` gets whole characters, as they come. Ends early once `stop` is true.
  // Errors: those of the preparer and the engine; kContextLength when the prompt fills the context.
  Result<Answer> Ask(GenerationRequest request, const std::function<void(std::string_view)>& show,
                     const std::function<bool()>& stop);

  bool has_chat_template() const { return service_->preparer().has_chat_template(); }
  // Tokens of prompt and answer together: the context, or what the KV memory holds.
  int64_t tokens_max() const;
  std::string MemoryPlan() const { return service_->MemoryPlan(); }

 private:
  explicit Answerer(const Clock& clock) : clock_(clock) {}
  bool Drain(EngineStream& stream, const std::function<void(std::string_view)>& show, class AnswerText* text,
             Answer* answer);

  const Clock& clock_;
  FutexDoorbell bell_;  // outlives the engine, which may ring it for an answer that was stopped
  std::unique_ptr<ModelService> service_;
};

// Prompt and generation rates and time to first token, three lines.
std::string RatesOf(const Answer& answer);

}  // namespace headrace
