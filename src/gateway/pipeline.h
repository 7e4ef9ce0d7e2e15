// The request pipeline, for `serve` now and `gateway` later: validate → prepare (text pool) → limits → admit → backend
// → settle. (Identity comes before: it needs no body.) No network types: work is posted through two ports. Everything
// here runs on the loop thread except validate and prepare, whose result is handed over whole.
// Invariants: a sink hears OnAdmitted at most once, OnEnd or OnError at most once and nothing after it; every call is
// settled exactly once. Stop the text pool before the pipeline goes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "api/limits.h"
#include "gateway/backend.h"
#include "gateway/preparer.h"
#include "gateway/text_pool.h"
#include "metrics/registry.h"

namespace headrace {

struct PipelineOptions {
  ApiLimits limits;
  std::vector<std::string> model_names;  // the first is the model's own
  TimeNs request_timeout = 0;            // 0: none
  TimeNs queue_timeout = 0;              // 0: none
  int requests_max = 4096;               // under way at once
};

// How a request ended, for the log and the counters.
struct Settlement {
  int status = 200;
  std::string error;  // ErrorCodeName, "" when none
  bool client_gone = false;
};

class PipelineSink {
 public:
  virtual ~PipelineSink() = default;
  // Admitted: the request, whole. Events follow.
  virtual void OnAdmitted(const PreparedRequest& request) = 0;
  virtual void OnDelta(const ChoiceDelta& delta) = 0;
  virtual void OnChoiceEnd(int index, FinishReason reason) = 0;
  virtual void OnEnd(const Usage& usage) = 0;
  // Before or after OnAdmitted; nothing follows.
  virtual void OnError(const Error& error) = 0;
};

class Pipeline;

// One request in the pipeline. Dropping it cancels whatever is under way. Loop thread.
class PipelineCall {
 public:
  ~PipelineCall();
  // The last stage: one access-log line and the counters. Once.
  void Settle(const Settlement& settlement);

 private:
  friend class Pipeline;
  class Work;
  explicit PipelineCall(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  std::shared_ptr<Work> work_;
};

constexpr char kDeadlineHeader[] = "X-Request-Deadline-Ms";

// What of a request stands outside its body.
struct RequestHead {
  std::string id;
  std::optional<int64_t> deadline_ms;  // X-Request-Deadline-Ms: from now; > 0
};

class Pipeline {
 public:
  using Poster = std::function<void(std::move_only_function<void()>)>;  // runs work on the loop thread

  Pipeline(const PipelineOptions& options, const Clock& clock, TextPool& text_pool, Poster poster,
           MetricsRegistry& metrics);

  // The model is there: requests are accepted from now on. Borrowed.
  void Open(const Preparer& preparer, Backend& backend);
  // No new requests (draining): kUnavailable.
  void Close() { closed_ = true; }
  bool ready() const { return backend_ != nullptr && !closed_; }
  int under_way() const { return under_way_; }

  // The request names one of this server's models.
  Status CheckModel(const std::string& model) const;

  // Events never come from inside Start. `sink` must outlive the call.
  std::unique_ptr<PipelineCall> Start(GenerationRequest::Kind kind, std::string body, Identity identity,
                                      RequestHead head, PipelineSink& sink);

 private:
  friend class PipelineCall::Work;
  // Any thread.
  Status Prepare(const Preparer& preparer, GenerationRequest::Kind kind, const std::string& body,
                 PreparedRequest* request) const;
  void NoteUnknownFields(const PreparedRequest& request);

  const PipelineOptions options_;
  const Clock& clock_;
  TextPool& text_pool_;
  const Poster poster_;
  MetricsRegistry& metrics_;
  const Preparer* preparer_ = nullptr;
  Backend* backend_ = nullptr;
  bool closed_ = false;
  int under_way_ = 0;
  std::set<std::pair<std::string, std::string>> unknown_fields_;  // (key, field) that the log has named
};

// Pairs of (key, unknown field) that are named in the log; beyond it they are only counted.
constexpr size_t kUnknownFieldsNamedMax = 1024;

}  // namespace headrace
