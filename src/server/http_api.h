// The HTTP face of `serve`: routes, keys, CORS, DNS-rebinding guard. Generation goes to the pipeline; everything small
// is answered here, also while the model loads. Loop thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/models.h"
#include "gateway/identity.h"
#include "gateway/pipeline.h"
#include "metrics/registry.h"
#include "net/event_loop.h"
#include "net/http_server.h"
#include "server/model_service.h"
#include "server/responder.h"

namespace headrace {

struct HttpApiOptions {
  std::vector<std::string> model_names;
  std::string host;                          // bound address, accepted in Host
  std::vector<std::string> allowed_hosts;    // further names accepted in Host; "*": any
  std::vector<std::string> allowed_origins;  // pages that may call us, beside those from loopback; "*": any
  int64_t created = 0;
  TimeNs keep_alive = 10 * kNsPerSecond;     // proxies and clients give up on a silent stream after a minute or more
  TimeNs stalled_after = 60 * kNsPerSecond;  // work and no step for this long means that the engine hangs
};

class HttpApi final : public HttpHandler {
 public:
  HttpApi(const HttpApiOptions& options, const KeyStore& keys, EventLoop& loop, const Clock& clock, Pipeline& pipeline,
          TextPool& text_pool, MetricsRegistry& metrics);

  // The model is loaded. Borrowed.
  void SetModel(ModelService* model) { model_ = model; }
  void SetDraining() { draining_ = true; }
  // Nothing is under way and every answer has been sent.
  bool all_written() { return text_jobs_ == 0 && answers_.all_written(); }
  // Ends every answer under way with an error.
  void FailAll(const Error& error) { answers_.FailAll(error); }

  std::optional<HttpResponse> OnHeaders(const HttpRequest& request) override;
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse OnProtocolError(int status, std::string_view message) override;

 private:
  struct Route {
    const char* path;  // also the name in log and metrics
    const char* method;
    bool needs_key;
    void (HttpApi::*handle)(std::shared_ptr<HttpExchange>);
  };
  static const Route kRoutes[];
  const Route* FindRoute(std::string_view path, std::string_view method, bool* path_exists) const;
  static std::string MethodsOf(std::string_view path);
  std::optional<HttpResponse> Refuse(const HttpRequest& request);
  HttpResponse RefuseRoute(const HttpRequest& request, bool path_exists);
  // One access-log line and the counter, for what the pipeline does not settle.
  void Note(std::string_view route, const HttpRequest& request, const HttpResponse& response);
  void Answer(HttpExchange& exchange, HttpResponse response);
  HttpHeaders AnswerHeaders(const HttpRequest& request);
  HttpResponse Refusal(const HttpRequest& request, const Error& error);
  HttpResponse Json(const HttpRequest& request, int status, std::string body);
  HttpResponse JsonOr(const HttpRequest& request, Result<std::string> body);
  std::string RequestId(const HttpRequest& request);

  void Chat(std::shared_ptr<HttpExchange> exchange) { Generate(std::move(exchange), GenerationRequest::Kind::kChat); }
  void Completions(std::shared_ptr<HttpExchange> exchange) {
    Generate(std::move(exchange), GenerationRequest::Kind::kCompletion);
  }
  void Generate(std::shared_ptr<HttpExchange> exchange, GenerationRequest::Kind kind);
  void Models(std::shared_ptr<HttpExchange> exchange);
  void OneModel(std::shared_ptr<HttpExchange> exchange);
  void DeleteModel(std::shared_ptr<HttpExchange> exchange);
  void Tokenize(std::shared_ptr<HttpExchange> exchange);
  void Detokenize(std::shared_ptr<HttpExchange> exchange);
  void Health(std::shared_ptr<HttpExchange> exchange);
  void Ready(std::shared_ptr<HttpExchange> exchange);
  void Metrics(std::shared_ptr<HttpExchange> exchange);
  void Version(std::shared_ptr<HttpExchange> exchange);
  // Runs `work` on the text pool and answers with its JSON.
  void AnswerFromPool(std::shared_ptr<HttpExchange> exchange,
                      std::move_only_function<Result<std::string>(const std::string& body)> work);
  Result<std::string> TokenizeText(const ModelService& model, const std::string& body) const;
  Result<std::string> DetokenizeIds(const ModelService& model, const std::string& body) const;
  std::vector<ModelCard> Cards() const;
  HealthState State() const;

  const HttpApiOptions options_;
  const KeyStore& keys_;
  EventLoop& loop_;
  const Clock& clock_;
  Pipeline& pipeline_;
  TextPool& text_pool_;
  MetricsRegistry& metrics_;
  AnswerSet answers_;
  ModelService* model_ = nullptr;
  bool draining_ = false;
  int text_jobs_ = 0;  // of AnswerFromPool, under way
  const uint64_t id_key_;
  uint64_t ids_ = 0;
};

}  // namespace headrace
