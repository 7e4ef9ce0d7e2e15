// One generation request over HTTP: the pipeline's events become a JSON answer or a stream of server-sent events.
// An AnswerSet owns it until the answer is complete or the client is gone. Loop thread.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "api/response.h"
#include "api/stream.h"
#include "gateway/pipeline.h"
#include "net/event_loop.h"
#include "net/http_server.h"

namespace headrace {

class GenerationResponder;

// The answers under way, and those that are complete but not yet taken by the kernel. Dropping it cancels the former.
class AnswerSet {
 public:
  explicit AnswerSet(EventLoop& loop) : loop_(loop) {}

  void Add(std::shared_ptr<GenerationResponder> answer) { under_way_.push_back(std::move(answer)); }
  void Remove(const GenerationResponder& answer);
  // The exchange counts as unwritten until its answer is complete and sent, or its client is gone.
  void Watch(std::shared_ptr<HttpExchange> exchange);
  // Nothing is under way and nothing waits to be sent.
  bool all_written();
  // Ends every answer under way with this error.
  void FailAll(const Error& error);

 private:
  void ForgetWritten();
  EventLoop& loop_;
  std::vector<std::shared_ptr<GenerationResponder>> under_way_;
  std::vector<std::shared_ptr<HttpExchange>> unwritten_;
  EventLoop::TimerId timer_;
};

// What all answers of this server share.
struct ResponderContext {
  EventLoop& loop;
  Pipeline& pipeline;
  const Clock& clock;
  AnswerSet& answers;
  TimeNs keep_alive = 0;  // a silent stream gets a comment after this long, and at the latest after 1.5 times as long
  std::string system_fingerprint;
  HttpHeaders headers;  // of this answer: request id, CORS
};

class GenerationResponder final : public PipelineSink, public std::enable_shared_from_this<GenerationResponder> {
 public:
  static void Run(ResponderContext context, GenerationRequest::Kind kind, Identity identity, RequestHead head,
                  std::shared_ptr<HttpExchange> exchange);

  GenerationResponder(ResponderContext context, GenerationRequest::Kind kind, std::string request_id,
                      std::shared_ptr<HttpExchange> exchange);
  ~GenerationResponder() override;

  void OnAdmitted(const PreparedRequest& request) override;
  void OnDelta(const ChoiceDelta& delta) override;
  void OnChoiceEnd(int index, FinishReason reason) override;
  void OnEnd(const Usage& usage) override;
  void OnError(const Error& error) override;

 private:
  friend class AnswerSet;
  // A whole answer under construction, one entry a choice.
  struct Collected {
    std::string text;
    std::vector<TokenLogprob> logprobs;
    FinishReason reason = FinishReason::kStop;
  };

  void StartStream();
  void StreamDelta(const ChoiceDelta& delta);
  void Send(std::string bytes);
  void ArmKeepAlive();
  HttpHeaders Headers(std::initializer_list<std::pair<std::string, std::string>> more) const;
  void RespondWhole(const Usage& usage);
  void Finish(const Settlement& settlement);
  std::vector<TokenLogprob>* PendingLogprobs(size_t index) {
    return wants_logprobs_ ? &pending_logprobs_[index] : nullptr;
  }

  ResponderContext context_;
  const GenerationRequest::Kind kind_;
  const std::string request_id_;
  std::shared_ptr<HttpExchange> exchange_;
  std::unique_ptr<PipelineCall> call_;
  ResponseHead head_;
  bool streaming_ = false;  // the client asked for a stream
  bool stream_started_ = false;
  bool include_usage_ = false;
  bool wants_logprobs_ = false;
  std::vector<Collected> collected_;
  std::vector<std::vector<TokenLogprob>> pending_logprobs_;  // of tokens whose text is not whole yet
  std::variant<std::monostate, ChatChunkWriter, CompletionChunkWriter> writer_;
  EventLoop::TimerId keep_alive_;
  TimeNs last_write_ = 0;
  bool finished_ = false;
};

}  // namespace headrace
