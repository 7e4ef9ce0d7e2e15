#include "gateway/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "api/error.h"
#include "base/log.h"
#include "gateway/candidate_ranking.h"

namespace headrace {
namespace {

constexpr int64_t kNotReadyRetryMs = 1000;

// vLLM's buckets, so that existing boards fit.
const std::vector<double> kTtftBuckets = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const std::vector<double> kLatencyBuckets = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

Error NotReady(const char* why) { return {ErrorCode::kUnavailable, why, {}, kNotReadyRetryMs}; }

TimeNs After(TimeNs time, int64_t ms) { return ms > (kNever - time) / kNsPerMs ? kNever : time + ms * kNsPerMs; }

std::string OrDash(const std::string& text) { return text.empty() ? "-" : EscapeForLog(text); }

std::string_view RouteName(GenerationRequest::Kind kind) {
  return kind == GenerationRequest::Kind::kChat ? "chat" : "completions";
}

double Seconds(TimeNs time) { return static_cast<double>(time) / kNsPerSecond; }

}  // namespace

// The state of one request, shared with the text pool's job so that dropping the call leaves nothing dangling.
class PipelineCall::Work final : public BackendSink, public std::enable_shared_from_this<Work> {
 public:
  Work(Pipeline& pipeline, GenerationRequest::Kind kind, Identity identity, RequestHead head, PipelineSink& sink)
      : pipeline_(pipeline),
        kind_(kind),
        sink_(&sink),
        accepted_(pipeline.clock_.Now()),
        deadline_ms_(head.deadline_ms.value_or(INT64_MAX)) {
    request_.identity = std::move(identity);
    request_.request_id = std::move(head.id);
    ++pipeline_.under_way_;
  }

  // Validate and prepare run on the text pool, on an object of their own: this one stays with the loop.
  void Begin(std::string body) {
    const bool posted = pipeline_.text_pool_.Post(
        [self = shared_from_this(), preparer = pipeline_.preparer_, body = std::move(body)]() mutable {
          auto prepared = std::make_shared<Prepared>();
          Pipeline& pipeline = self->pipeline_;
          if (!self->dropped_.load(std::memory_order_relaxed))
            prepared->status = pipeline.Prepare(*preparer, self->kind_, body, &prepared->request);
          pipeline.poster_([self = std::move(self), prepared = std::move(prepared)] { self->AfterPrepare(*prepared); });
        });
    if (!posted)
      Later({ErrorCode::kOverloaded, "Too many requests are waiting to be read. Retry later.", {}, kNotReadyRetryMs});
  }

  void Later(Error error) {
    pipeline_.poster_([self = shared_from_this(), error = std::move(error)] { self->OnError(error); });
  }

  void Drop() {
    sink_ = nullptr;
    dropped_.store(true, std::memory_order_relaxed);
    call_.reset();
    if (!settled_) Settle({.status = 499, .error = "cancelled", .client_gone = true});
    --pipeline_.under_way_;
  }

  void Settle(const Settlement& settlement) {
    if (settled_) return;
    settled_ = true;
    const TimeNs now = pipeline_.clock_.Now();
    const std::string route(RouteName(kind_));
    pipeline_.metrics_.Add("headrace_requests_total", "Finished requests by route and status.",
                           {{"route", route}, {"status", std::to_string(settlement.status)}});
    pipeline_.metrics_.Add("headrace_completion_tokens_total", "Tokens generated for finished requests.", {},
                           static_cast<double>(completion_tokens_));
    pipeline_.metrics_.Observe("headrace_request_seconds", "Time from accept to the last byte.", {{"route", route}},
                               kLatencyBuckets, Seconds(now - accepted_));
    if (first_delta_ != 0) {
      pipeline_.metrics_.Observe("headrace_time_to_first_token_seconds", "Time from accept to the first text.", {},
                                 kTtftBuckets, Seconds(first_delta_ - accepted_));
    }
    LogEvent(spdlog::level::info, "request",
             {{"id", request_.request_id},
              {"route", route},
              {"key", request_.identity.key_name},
              {"tenant", request_.identity.tenant},
              {"model", request_.api.model},
              {"status", settlement.status},
              {"error", settlement.error},
              {"prompt_tokens", request_.prompt_tokens()},
              {"completion_tokens", completion_tokens_},
              {"ttft_ms", first_delta_ == 0 ? -1 : (first_delta_ - accepted_) / kNsPerMs},
              {"total_ms", (now - accepted_) / kNsPerMs}});
  }

 private:
  struct Prepared {
    PreparedRequest request;
    Status status;
  };

  void AfterPrepare(Prepared& prepared) {
    if (sink_ == nullptr) return;
    prepared.request.identity = std::move(request_.identity);
    prepared.request.request_id = std::move(request_.request_id);
    request_ = std::move(prepared.request);
    if (!prepared.status) return OnError(prepared.status.error());
    pipeline_.NoteUnknownFields(request_);
    const PipelineOptions& options = pipeline_.options_;
    const Identity& who = request_.identity;
    request_.urgency =
        ChooseUrgency(request_.api.priority, request_.api.service_tier, who.standard_band, who.highest_band);
    if (options.queue_timeout > 0) request_.start_before = accepted_ + options.queue_timeout;
    if (options.request_timeout > 0) request_.finish_before = accepted_ + options.request_timeout;
    if (request_.api.deadline_ms.value_or(INT64_MAX) <= deadline_ms_) {
      deadline_name_ = "deadline_ms";
      deadline_ms_ = request_.api.deadline_ms.value_or(INT64_MAX);
    }
    request_.deadline = After(accepted_, deadline_ms_);
    request_.finish_before = std::min(request_.finish_before, request_.deadline);
    if (request_.ranked()) ranking_.emplace(request_.prompts.size(), request_.api.n, request_.api.best_of);
    auto call = pipeline_.backend_->Start(request_, *this);
    if (!call) return OnError(call.error());
    call_ = std::move(*call);
    sink_->OnAdmitted(request_);
  }

  void OnDelta(ChoiceDelta delta) override {
    if (sink_ == nullptr || over_) return;
    if (first_delta_ == 0) first_delta_ = pipeline_.clock_.Now();
    completion_tokens_ += delta.tokens;
    if (ranking_) return ranking_->Add(delta);
    sink_->OnDelta(delta);
  }
  void OnChoiceEnd(int index, FinishReason reason) override {
    if (sink_ == nullptr || over_) return;
    if (ranking_) return ranking_->End(index, reason);
    sink_->OnChoiceEnd(index, reason);
  }
  void OnEnd(int64_t cached_tokens) override {
    if (sink_ == nullptr || std::exchange(over_, true)) return;
    if (ranking_) HandOnBest();
    if (sink_ == nullptr) return;
    sink_->OnEnd({.prompt_tokens = request_.prompt_tokens(),
                  .completion_tokens = completion_tokens_,
                  .cached_tokens = cached_tokens});
  }
  void OnError(const Error& error) override {
    if (sink_ == nullptr || std::exchange(over_, true)) return;
    if (error.field == "deadline")
      return sink_->OnError({error.code, error.message, deadline_name_, error.retry_after_ms});
    if (error.code == ErrorCode::kDeadlineExceeded) return sink_->OnError(Late(error));
    if (error.code == ErrorCode::kInternal || error.code == ErrorCode::kIo || error.code == ErrorCode::kCorruptData) {
      LOG_ERROR("request id={} failed: {}", request_.request_id, EscapeForLog(error.message, 500));
    }
    sink_->OnError(error);
  }

  void HandOnBest() {
    for (const CandidateRanking::Choice& choice : ranking_->TakeBest()) {
      if (sink_ != nullptr) sink_->OnDelta(choice.whole);
      if (sink_ != nullptr) sink_->OnChoiceEnd(choice.whole.index, choice.reason);
    }
  }

  // Names the limit that the backend only knows as a time: the nearer one of the server's and the client's.
  Error Late(Error error) const {
    const TimeNs server = pipeline_.options_.request_timeout;
    if (server > 0 && deadline_ms_ >= server / kNsPerMs) {
      error.message = fmt::format(
          "The request took longer than {} s, the most that this server allows (--request-timeout), and was ended "
          "after {} tokens. Ask for fewer tokens, or let the operator raise the limit.",
          Seconds(server), completion_tokens_);
    } else if (deadline_ms_ != INT64_MAX) {
      error.message = fmt::format(
          "The request took longer than its '{}' of {} and was ended after {} tokens. Send a longer deadline or ask "
          "for "
          "fewer tokens.",
          deadline_name_, deadline_ms_, completion_tokens_);
      error.field = deadline_name_;
    }
    return error;
  }

  Pipeline& pipeline_;
  const GenerationRequest::Kind kind_;
  PipelineSink* sink_;                // null once dropped
  std::atomic<bool> dropped_{false};  // the text pool need not begin
  PreparedRequest request_;
  std::unique_ptr<BackendCall> call_;
  std::optional<CandidateRanking> ranking_;  // best_of above n
  const TimeNs accepted_;
  int64_t deadline_ms_;  // the nearer one of header and body; INT64_MAX: none
  const char* deadline_name_ = kDeadlineHeader;
  TimeNs first_delta_ = 0;
  int64_t completion_tokens_ = 0;
  bool over_ = false;  // the last event has been handed on
  bool settled_ = false;
};

PipelineCall::~PipelineCall() { work_->Drop(); }
void PipelineCall::Settle(const Settlement& settlement) { work_->Settle(settlement); }

Pipeline::Pipeline(const PipelineOptions& options, const Clock& clock, TextPool& text_pool, Poster poster,
                   MetricsRegistry& metrics)
    : options_(options), clock_(clock), text_pool_(text_pool), poster_(std::move(poster)), metrics_(metrics) {}

void Pipeline::Open(const Preparer& preparer, Backend& backend) {
  preparer_ = &preparer;
  backend_ = &backend;
}

Status Pipeline::Prepare(const Preparer& preparer, GenerationRequest::Kind kind, const std::string& body,
                         PreparedRequest* request) const {
  try {
    auto parsed = kind == GenerationRequest::Kind::kChat ? ParseChatRequest(body, options_.limits)
                                                         : ParseCompletionRequest(body, options_.limits);
    HR_RETURN_IF_ERROR(parsed);
    request->api = std::move(*parsed);
    HR_RETURN_IF_ERROR(CheckModel(request->api.model));
    return preparer.Prepare(request);
  } catch (const std::exception& e) {  // no memory, or a library's own: this request's fault, not the process's end
    return Fail(ErrorCode::kInternal, std::string("while reading the request: ") + e.what());
  }
}

// T7: a line for each request would cost throughput.
void Pipeline::NoteUnknownFields(const PreparedRequest& request) {
  if (request.api.unknown_fields.empty()) return;
  metrics_.Add("headrace_unknown_fields_total", "Request fields that this server does not know and passed over.", {},
               static_cast<double>(request.api.unknown_fields.size()));
  for (const std::string& field : request.api.unknown_fields) {
    if (unknown_fields_.size() >= kUnknownFieldsNamedMax) return;
    if (!unknown_fields_.emplace(request.identity.key_name, field).second) continue;
    LOG_INFO("key={} sends a field that this server does not know: {} (first in request id={}; it is named once)",
             OrDash(request.identity.key_name), EscapeForLog(field), request.request_id);
  }
}

Status Pipeline::CheckModel(const std::string& model) const {
  if (std::ranges::find(options_.model_names, model) != options_.model_names.end()) return {};
  return Fail(ModelNotFoundError(model, options_.model_names));
}

std::unique_ptr<PipelineCall> Pipeline::Start(GenerationRequest::Kind kind, std::string body, Identity identity,
                                              RequestHead head, PipelineSink& sink) {
  auto work = std::make_shared<PipelineCall::Work>(*this, kind, std::move(identity), std::move(head), sink);
  std::unique_ptr<PipelineCall> call(new PipelineCall(work));
  if (closed_) {
    work->Later(NotReady("The server is shutting down. Send the request to another one."));
  } else if (backend_ == nullptr) {
    work->Later(NotReady("The model is still loading. Retry in a moment."));
  } else if (under_way_ > options_.requests_max) {
    work->Later({ErrorCode::kOverloaded, "Too many requests are under way. Retry later.", {}, kNotReadyRetryMs});
  } else {
    work->Begin(std::move(body));
  }
  return call;
}

}  // namespace headrace
