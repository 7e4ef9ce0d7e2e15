#include "chat/answerer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/engine_request.h"
#include "text/stream_decoder.h"

namespace headrace {
namespace {

double PerSecond(int64_t count, TimeNs time) {
  return time > 0 ? static_cast<double>(count) * static_cast<double>(kNsPerSecond) / static_cast<double>(time) : 0;
}

}  // namespace

// The bytes that the engine has released, as characters.
class AnswerText {
 public:
  std::string Take(const Tokenizer& tokenizer, const TokenEvent& event) {
    if (event.token >= 0 && !tokenizer.IsControl(event.token)) bytes_ += tokenizer.TokenBytes(event.token);
    const size_t fresh = event.released_bytes - released_;
    decoder_.Append(std::string_view(bytes_).substr(0, fresh));
    bytes_.erase(0, fresh);
    released_ = event.released_bytes;
    return event.finish == EndReason::kNone ? decoder_.TakeComplete() : decoder_.Flush();
  }

 private:
  StreamDecoder decoder_;
  std::string bytes_;  // generated, not yet released
  size_t released_ = 0;
};

Result<std::unique_ptr<Answerer>> Answerer::Load(const ServeOptions& options, const Clock& clock) {
  std::unique_ptr<Answerer> answerer(new Answerer(clock));
  HR_ASSIGN_OR_RETURN(answerer->service_, ModelService::Load(options, clock));
  return answerer;
}

int64_t Answerer::tokens_max() const { return std::min(service_->description().context, service_->kv_tokens()); }

Result<Answer> Answerer::Ask(GenerationRequest request, const std::function<void(std::string_view)>& show,
                             const std::function<bool()>& stop) {
  PreparedRequest prepared;
  prepared.api = std::move(request);
  HR_RETURN_IF_ERROR(service_->preparer().Prepare(&prepared));
  Answer answer;
  answer.submitted = clock_.Now();
  answer.prompt_tokens = prepared.prompt_tokens();
  HR_ASSIGN_OR_RETURN(const std::optional<StopMatcher> stops, StopsOf(prepared.api));
  HR_ASSIGN_OR_RETURN(const std::shared_ptr<EngineStream> stream,
                      service_->engine().Submit(ToEngineRequest(prepared, 0, stops), &bell_));
  AnswerText text;
  while (!Drain(*stream, show, &text, &answer)) {
    if (stop()) {
      stream->Cancel();
      return answer;
    }
    bell_.Wait(kStopPollNs);
  }
  if (answer.end == EndReason::kError) return Fail(stream->error());
  return answer;
}

// Everything new. True after the last event.
bool Answerer::Drain(EngineStream& stream, const std::function<void(std::string_view)>& show, AnswerText* text,
                     Answer* answer) {
  TokenEvent event;
  while (answer->end == EndReason::kNone && stream.Pop(event)) {
    if (event.token >= 0) {
      answer->last_token = clock_.Now();
      if (answer->generated_tokens++ == 0) answer->first_token = answer->last_token;
    }
    const std::string fresh = text->Take(service_->tokenizer(), event);
    answer->text += fresh;
    if (!fresh.empty()) show(fresh);
    answer->end = event.finish;
  }
  return answer->end != EndReason::kNone;
}

std::string RatesOf(const Answer& answer) {
  if (answer.generated_tokens == 0) return fmt::format("prompt       {} tokens, no answer\n", answer.prompt_tokens);
  const TimeNs to_first = answer.first_token - answer.submitted;
  // The first token belongs to the prompt's time: the rate is of the gaps after it.
  return fmt::format(
      "prompt       {} tokens, {:.1f} tokens/s\ngeneration   {} tokens, {:.1f} tokens/s\nfirst token  {:.3f} s\n",
      answer.prompt_tokens, PerSecond(answer.prompt_tokens, to_first), answer.generated_tokens,
      PerSecond(answer.generated_tokens - 1, answer.last_token - answer.first_token),
      static_cast<double>(to_first) / static_cast<double>(kNsPerSecond));
}

}  // namespace headrace
