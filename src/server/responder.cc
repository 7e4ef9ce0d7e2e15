#include "server/responder.h"

#include <algorithm>
#include <utility>

#include "api/error.h"
#include "net/sse.h"

namespace headrace {
namespace {

// Exchanges that wait to be sent are looked at this often: one may hold a body of many megabytes.
constexpr TimeNs kForgetEvery = kNsPerSecond;

}  // namespace

void AnswerSet::Remove(const GenerationResponder& answer) {
  const auto it = std::ranges::find(under_way_, &answer, &std::shared_ptr<GenerationResponder>::get);
  if (it == under_way_.end()) return;
  const std::shared_ptr<GenerationResponder> removed = std::move(*it);
  *it = std::move(under_way_.back());
  under_way_.pop_back();
  Watch(removed->exchange_);
}

void AnswerSet::Watch(std::shared_ptr<HttpExchange> exchange) {
  if (!exchange->open()) return;
  unwritten_.push_back(std::move(exchange));
  if (unwritten_.size() == 1) timer_ = loop_.After(kForgetEvery, [this] { ForgetWritten(); });
}

void AnswerSet::ForgetWritten() {
  std::erase_if(unwritten_, [](const auto& exchange) { return !exchange->open(); });
  loop_.Cancel(timer_);
  if (!unwritten_.empty()) timer_ = loop_.After(kForgetEvery, [this] { ForgetWritten(); });
}

bool AnswerSet::all_written() {
  ForgetWritten();
  return under_way_.empty() && unwritten_.empty();
}

void AnswerSet::FailAll(const Error& error) {
  const auto answers = under_way_;
  for (const auto& answer : answers) answer->OnError(error);
}

void GenerationResponder::Run(ResponderContext context, GenerationRequest::Kind kind, Identity identity,
                              RequestHead head, std::shared_ptr<HttpExchange> exchange) {
  auto responder = std::make_shared<GenerationResponder>(std::move(context), kind, head.id, exchange);
  responder->context_.answers.Add(responder);
  responder->call_ = responder->context_.pipeline.Start(kind, exchange->request().body, std::move(identity),
                                                        std::move(head), *responder);
  responder->ArmKeepAlive();
  exchange->OnClientGone([weak = std::weak_ptr(responder)] {
    if (auto self = weak.lock()) self->Finish({.status = 499, .error = "cancelled", .client_gone = true});
  });
}

GenerationResponder::GenerationResponder(ResponderContext context, GenerationRequest::Kind kind, std::string request_id,
                                         std::shared_ptr<HttpExchange> exchange)
    : context_(std::move(context)), kind_(kind), request_id_(std::move(request_id)), exchange_(std::move(exchange)) {}

GenerationResponder::~GenerationResponder() { context_.loop.Cancel(keep_alive_); }

void GenerationResponder::OnAdmitted(const PreparedRequest& request) {
  const GenerationRequest& api = request.api;
  head_ = {.id = (kind_ == GenerationRequest::Kind::kChat ? "chatcmpl-" : "cmpl-") + request_id_,
           .created = context_.clock.UnixSeconds(),
           .model = api.model,
           .system_fingerprint = context_.system_fingerprint,
           .service_tier = api.service_tier.empty() ? "" : std::string(ServiceTierOf(request.urgency.band))};
  streaming_ = api.stream;
  include_usage_ = api.include_usage;
  wants_logprobs_ = api.logprobs;
  const auto choices = static_cast<size_t>(request.choices());
  collected_.resize(choices);
  pending_logprobs_.resize(choices);
}

void GenerationResponder::StartStream() {
  stream_started_ = true;
  exchange_->StartStream(200, Headers({{"Content-Type", "text/event-stream; charset=utf-8"},
                                       {"Cache-Control", "no-cache"},
                                       {"X-Accel-Buffering", "no"}}));
  std::string out;
  if (kind_ == GenerationRequest::Kind::kChat) {
    auto& writer = writer_.emplace<ChatChunkWriter>(head_, include_usage_);
    for (size_t i = 0; i < collected_.size(); ++i) writer.AppendRole(out, static_cast<int>(i));
  } else {
    writer_.emplace<CompletionChunkWriter>(head_, static_cast<int>(collected_.size()), include_usage_);
  }
  Send(std::move(out));
}

HttpHeaders GenerationResponder::Headers(std::initializer_list<std::pair<std::string, std::string>> more) const {
  HttpHeaders headers = context_.headers;
  headers.insert(headers.end(), more);
  return headers;
}

void GenerationResponder::Send(std::string bytes) {
  if (bytes.empty()) return;
  last_write_ = context_.loop.Now();
  exchange_->Write(std::move(bytes));
}

void GenerationResponder::ArmKeepAlive() {
  keep_alive_ = context_.loop.After(context_.keep_alive, [this] {
    if (streaming_) {
      if (!stream_started_) StartStream();
      if (context_.loop.Now() - last_write_ >= context_.keep_alive / 2) Send(SseComment("ping"));
    }
    ArmKeepAlive();
  });
}

void GenerationResponder::OnDelta(const ChoiceDelta& delta) {
  if (finished_) return;
  if (streaming_) return StreamDelta(delta);
  Collected& choice = collected_[static_cast<size_t>(delta.index)];
  choice.text += delta.text;
  choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
}

void GenerationResponder::StreamDelta(const ChoiceDelta& delta) {
  if (!stream_started_) StartStream();
  const auto index = static_cast<size_t>(delta.index);
  std::vector<TokenLogprob>* logprobs = PendingLogprobs(index);
  if (logprobs != nullptr) logprobs->insert(logprobs->end(), delta.logprobs.begin(), delta.logprobs.end());
  std::string out;
  const bool written =
      kind_ == GenerationRequest::Kind::kChat
          ? std::get<ChatChunkWriter>(writer_).AppendText(out, delta.index, delta.text, logprobs)
          : std::get<CompletionChunkWriter>(writer_).AppendText(out, delta.index, delta.text, logprobs);
  if (written && logprobs != nullptr) logprobs->clear();
  Send(std::move(out));
}

void GenerationResponder::OnChoiceEnd(int index, FinishReason reason) {
  if (finished_) return;
  collected_[static_cast<size_t>(index)].reason = reason;
  if (!streaming_) return;
  if (!stream_started_) StartStream();
  std::vector<TokenLogprob>* logprobs = PendingLogprobs(static_cast<size_t>(index));
  std::string out;
  if (kind_ == GenerationRequest::Kind::kChat) {
    std::get<ChatChunkWriter>(writer_).AppendFinish(out, index, reason, logprobs);
  } else {
    std::get<CompletionChunkWriter>(writer_).AppendFinish(out, index, reason, logprobs);
  }
  Send(std::move(out));
}

void GenerationResponder::OnEnd(const Usage& usage) {
  if (finished_) return;
  if (!streaming_) return RespondWhole(usage);
  std::string out;
  if (include_usage_) {
    std::visit(
        [&](auto& writer) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(writer)>, std::monostate>) writer.AppendUsage(out, usage);
        },
        writer_);
  }
  out += kSseDone;
  Send(std::move(out));
  exchange_->End();
  Finish({.status = 200});
}

void GenerationResponder::RespondWhole(const Usage& usage) {
  HttpResponse response{200, Headers({{"Content-Type", "application/json"}}), ""};
  if (kind_ == GenerationRequest::Kind::kChat) {
    std::vector<ChatChoice> choices;
    for (Collected& c : collected_) {
      choices.push_back(
          {.index = static_cast<int>(choices.size()), .content = std::move(c.text), .finish_reason = c.reason});
      if (wants_logprobs_) choices.back().logprobs = std::move(c.logprobs);
    }
    response.body = ChatCompletionBody(head_, choices, usage);
  } else {
    std::vector<CompletionChoice> choices;
    for (Collected& c : collected_) {
      choices.push_back(
          {.index = static_cast<int>(choices.size()), .text = std::move(c.text), .finish_reason = c.reason});
      if (wants_logprobs_) choices.back().logprobs = std::move(c.logprobs);
    }
    response.body = CompletionBody(head_, choices, usage);
  }
  exchange_->Respond(std::move(response));
  Finish({.status = 200});
}

void GenerationResponder::OnError(const Error& error) {
  if (finished_) return;
  HttpError http = ToOpenAiError(error);
  if (stream_started_) {
    // O-05: one parseable error event, no [DONE], and the body ends properly.
    Send(SseData(StreamErrorEvent(error)));
    exchange_->End();
  } else {
    HttpResponse response{http.status, Headers({{"Content-Type", "application/json"}}), std::move(http.body)};
    response.headers.insert(response.headers.end(), http.headers.begin(), http.headers.end());
    exchange_->Respond(std::move(response));
  }
  Finish({.status = http.status, .error = std::string(ErrorCodeName(error.code))});
}

void GenerationResponder::Finish(const Settlement& settlement) {
  if (std::exchange(finished_, true)) return;
  context_.loop.Cancel(keep_alive_);
  call_->Settle(settlement);
  // The call may be the one that is calling us: let it return first. The loop runs this only while the set is there.
  context_.loop.Post([this, &answers = context_.answers] { answers.Remove(*this); });
}

}  // namespace headrace
