// The HTTP face of `serve`: routes, keys, CORS, DNS-rebinding guard. Generation goes to the pipeline; everything small is
// answered here, also while the model loads. Loop thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/models.h"
#include "gateway/identity.h"
#include "gateway/pipeline.h"
#include "metrics/registry.h"
#include "net/event_loop.h"
#include "net/http_server.h"
#include "server/model_service.h"

namespace headrace {

struct HttpApiOptions {
  std::vector<std::string> model_names;
  std::string host;               // bound address, accepted in Host
  int64_t created = 0;
};

class HttpApi final : public HttpHandler {
 public:
  HttpApi(const HttpApiOptions& options, const KeyStore& keys, EventLoop& loop, const Clock& clock, Pipeline& pipeline, TextPool& text_pool, MetricsRegistry& metrics);

  // The model is loaded. Borrowed.
  void SetModel(ModelService* model) { model_ = model; }
  void SetDraining() { draining_ = true; }

  std::optional<HttpResponse> OnHeaders(const HttpRequest& request) override;
  void OnRequest(std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse OnProtocolError(int status, std::string_view message) override;

 private:
  struct Route {
    const char* path;
    const char* method;
    bool needs_key;
    void (HttpApi::*handle)(std::shared_ptr<HttpExchange>);
  };
  static const Route kRoutes[];
  const Route* FindRoute(std::string_view path, std::string_view method, bool* path_exists) const;
  HttpHeaders CommonHeaders(const HttpRequest& request);
  HttpResponse Refusal(const HttpRequest& request, const Error& error);
  HttpResponse Json(const HttpRequest& request, int status, std::string body);
  std::string RequestId(const HttpRequest& request);

  void Chat(std::shared_ptr<HttpExchange> exchange) { Generate(std::move(exchange), GenerationRequest::Kind::kChat); }
  void Completions(std::shared_ptr<HttpExchange> exchange) { Generate(std::move(exchange), GenerationRequest::Kind::kCompletion); }
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
  std::vector<ModelCard> Cards() const;
  HealthState State() const;

  const HttpApiOptions options_;
  const KeyStore& keys_;
  EventLoop& loop_;
  const Clock& clock_;
  Pipeline& pipeline_;
  TextPool& text_pool_;
  MetricsRegistry& metrics_;
  ModelService* model_ = nullptr;
  bool draining_ = false;
  const uint64_t id_key_;
  uint64_t ids_ = 0;
};

}  // namespace headrace
