#include "server/local_backend.h"

#include <algorithm>
#include <utility>

#include "api/error.h"
#include "server/engine_request.h"
#include "text/stream_decoder.h"

namespace headrace {
namespace {

FinishReason ToFinishReason(EndReason reason) {
  return reason == EndReason::kStop ? FinishReason::kStop : FinishReason::kLength;
}

// Bytes as JSON-safe text: what is not UTF-8 becomes U+FFFD.
std::string AsText(std::string_view bytes) {
  StreamDecoder decoder;
  decoder.Append(bytes);
  return decoder.Flush();
}

TokenLogprob ToTokenLogprob(const Tokenizer& tokenizer, const SampleResult& result) {
  TokenLogprob out;
  out.bytes = std::string(tokenizer.TokenBytes(result.token));
  out.token = AsText(out.bytes);
  out.logprob = result.logprob;
  for (int32_t i = 0; i < result.top_count; ++i) {
    const std::string bytes(tokenizer.TokenBytes(result.top_tokens[i]));
    out.top.push_back({AsText(bytes), bytes, result.top_logprobs[i]});
  }
  return out;
}

}  // namespace

// All choices of one request.
class LocalBackend::Call final : public BackendCall {
 public:
  Call(LocalBackend& backend, const PreparedRequest& request, BackendSink& sink)
      : backend_(backend), request_(request), sink_(sink) {
    backend_.calls_.push_back(this);
  }
  ~Call() override {
    std::erase(backend_.calls_, this);
    *alive_ = false;
    for (Choice& choice : choices_) {
      if (!choice.ended) choice.stream->Cancel();
    }
  }

  Status Submit() {
    HR_ASSIGN_OR_RETURN(const std::optional<StopMatcher> stops, StopsOf(request_.api));
    for (int i = 0; i < request_.candidates(); ++i) {
      auto r = ToEngineRequest(request_, i, stops);
      const auto prompt_tokens = static_cast<int64_t>(r->prompt.size());
      auto stream = backend_.engine_.Submit(std::move(r), backend_.bell_.get());
      if (!stream) return Refused(stream.error(), prompt_tokens);
      choices_.push_back({.stream = std::move(*stream)});
    }
    return {};
  }

  // Hands on everything new. The sink may destroy this call. The bell of others rings here too, also between the last
  // event and the destruction: nothing follows the last event.
  void Drain() {
    if (over_ || !DrainChoices() || over_) return;
    if (failed_ != nullptr) {
      // What the others had said by then: some were looked at before.
      if (DrainChoices() && !over_) FailAll(*failed_);
      return;
    }
    if (!std::ranges::all_of(choices_, &Choice::ended)) return;
    over_ = true;
    sink_.OnEnd(CachedTokens());
  }

 private:
  // False: the sink has destroyed this call.
  bool DrainChoices() {
    const std::shared_ptr<bool> alive = alive_;
    for (size_t i = 0; i < choices_.size() && *alive; ++i) {
      if (!choices_[i].ended) DrainChoice(static_cast<int>(i), choices_[i]);
    }
    return *alive;
  }

  struct Choice {
    std::shared_ptr<EngineStream> stream;
    StreamDecoder decoder;
    std::string bytes;      // generated, not yet released
    uint64_t released = 0;  // bytes of the answer given to the decoder
    bool echoed = false;
    bool ended = false;
  };

  Status Refused(Error error, int64_t prompt_tokens) const {
    if (error.code != ErrorCode::kContextLength) return Fail(std::move(error));
    const ExecutorDescription& d = backend_.engine_.description();
    const int64_t pool_tokens = int64_t{d.kv_blocks} * kBlockTokens;
    const std::string field = request_.api.kind == GenerationRequest::Kind::kChat ? "messages" : "prompt";
    if (pool_tokens < d.context)
      return Fail(KvPoolLimitError(pool_tokens, prompt_tokens, request_.api.max_tokens, field));
    return Fail(ContextLengthError(d.context, prompt_tokens, request_.api.max_tokens, field));
  }

  // Of each prompt what the candidate that found least in the cache found: the others had its blocks.
  int64_t CachedTokens() const {
    const auto each = static_cast<size_t>(request_.api.best_of);
    int64_t tokens = 0;
    for (size_t first = 0; first < choices_.size(); first += each) {
      int64_t least = INT64_MAX;
      for (size_t i = first; i < first + each; ++i) least = std::min(least, choices_[i].stream->cached_tokens());
      tokens += least;
    }
    return tokens;
  }

  // One choice failed: the request has, and its other choices are not worth their steps.
  void FailAll(const Error& error) {
    over_ = true;
    for (Choice& choice : choices_) {
      if (!std::exchange(choice.ended, true)) choice.stream->Cancel();
    }
    sink_.OnError(error);
  }

  // The prompt as the first text of an echoing choice, with its log-probabilities.
  void Echo(size_t index, Choice& choice, ChoiceDelta* delta) {
    choice.echoed = true;
    const std::vector<int32_t>& prompt = request_.prompts[index / static_cast<size_t>(request_.api.best_of)];
    for (int32_t id : prompt) choice.decoder.Append(backend_.tokenizer_.TokenBytes(id));
    if (!request_.api.logprobs) return;
    TokenLogprob first;
    first.bytes = std::string(backend_.tokenizer_.TokenBytes(prompt[0]));
    first.token = AsText(first.bytes);
    delta->logprobs.push_back(std::move(first));
    SampleResult result;
    for (size_t i = 1; i < prompt.size() && choice.stream->PopLogprobs(result); ++i)
      delta->logprobs.push_back(ToTokenLogprob(backend_.tokenizer_, result));
  }

  void DrainChoice(int index, Choice& choice) {
    ChoiceDelta delta;
    delta.index = index;
    TokenEvent event;
    EndReason end = EndReason::kNone;
    while (end == EndReason::kNone && choice.stream->Pop(event)) {
      if (request_.api.echo && !choice.echoed) Echo(static_cast<size_t>(index), choice, &delta);
      if (event.token >= 0) {
        ++delta.tokens;
        if (!backend_.tokenizer_.IsControl(event.token) || !request_.api.skip_special_tokens)
          choice.bytes += backend_.tokenizer_.TokenBytes(event.token);
        SampleResult result;
        if (request_.wants_logprobs() && choice.stream->PopLogprobs(result))
          delta.logprobs.push_back(ToTokenLogprob(backend_.tokenizer_, result));
      }
      const auto fresh = static_cast<size_t>(event.released_bytes - choice.released);
      choice.decoder.Append(std::string_view(choice.bytes).substr(0, fresh));
      choice.bytes.erase(0, fresh);
      choice.released = event.released_bytes;
      end = event.finish;
    }
    const bool failed = end == EndReason::kError;
    delta.text = end == EndReason::kNone || failed ? choice.decoder.TakeComplete() : choice.decoder.Flush();
    choice.ended = end != EndReason::kNone;
    if (failed && failed_ == nullptr) failed_ = &choice.stream->error();
    const std::shared_ptr<bool> alive = alive_;
    if (!delta.text.empty() || delta.tokens > 0) sink_.OnDelta(std::move(delta));
    if (*alive && choice.ended && !failed) sink_.OnChoiceEnd(index, ToFinishReason(end));
  }

  LocalBackend& backend_;
  const PreparedRequest& request_;
  BackendSink& sink_;
  std::vector<Choice> choices_;
  const Error* failed_ = nullptr;  // of the first choice that did
  bool over_ = false;              // OnEnd or OnError has been called
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

LocalBackend::LocalBackend(EventLoop& loop, Engine& engine, const Tokenizer& tokenizer)
    : engine_(engine), tokenizer_(tokenizer), bell_(loop.MakeDoorbell([this] { DrainAll(); })) {}

LocalBackend::~LocalBackend() = default;

Result<std::unique_ptr<BackendCall>> LocalBackend::Start(const PreparedRequest& request, BackendSink& sink) {
  auto call = std::make_unique<Call>(*this, request, sink);
  HR_RETURN_IF_ERROR(call->Submit());
  return call;
}

void LocalBackend::DrainAll() {
  const std::vector<Call*> snapshot = calls_;
  for (Call* call : snapshot) {
    if (std::ranges::find(calls_, call) != calls_.end()) call->Drain();
  }
}

}  // namespace headrace
