#include "server/http_api.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/error.h"
#include "api/tokenize.h"
#include "base/log.h"
#include "base/random.h"
#include "server/http_guard.h"
#include "server/responder.h"
#include "text/stream_decoder.h"

namespace headrace {
namespace {

constexpr char kVersion[] = "0.1.0";
// The engine answers for itself: work and no step for this long means that it hangs.
constexpr TimeNs kStalledAfter = 60 * kNsPerSecond;

constexpr std::string_view kModelsPrefix = "/v1/models/";

}  // namespace

const HttpApi::Route HttpApi::kRoutes[] = {
    {"/v1/chat/completions", "POST", true, &HttpApi::Chat}, {"/v1/completions", "POST", true, &HttpApi::Completions},
    {"/v1/models", "GET", true, &HttpApi::Models},          {"/tokenize", "POST", true, &HttpApi::Tokenize},
    {"/detokenize", "POST", true, &HttpApi::Detokenize},    {"/health", "GET", false, &HttpApi::Health},
    {"/ready", "GET", false, &HttpApi::Ready},              {"/metrics", "GET", false, &HttpApi::Metrics},
    {"/version", "GET", false, &HttpApi::Version},          {"/ping", "GET", false, &HttpApi::Health},
};

HttpApi::HttpApi(const HttpApiOptions& options, const KeyStore& keys, EventLoop& loop, const Clock& clock, Pipeline& pipeline, TextPool& text_pool,
                 MetricsRegistry& metrics)
    : options_(options), keys_(keys), loop_(loop), clock_(clock), pipeline_(pipeline), text_pool_(text_pool), metrics_(metrics), id_key_(EntropySeed()) {}

const HttpApi::Route* HttpApi::FindRoute(std::string_view path, std::string_view method, bool* path_exists) const {
  static constexpr Route kOneModel{"", "GET", true, &HttpApi::OneModel}, kDeleteModel{"", "DELETE", true, &HttpApi::DeleteModel};
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (method == "HEAD") method = "GET";
  if (path.starts_with(kModelsPrefix)) {
    *path_exists = true;
    return method == "GET" ? &kOneModel : method == "DELETE" ? &kDeleteModel : nullptr;
  }
  for (const Route& route : kRoutes) {
    if (path != route.path) continue;
    *path_exists = true;
    if (method == route.method) return &route;
  }
  return nullptr;
}

std::string HttpApi::RequestId(const HttpRequest& request) {
  const std::string_view sent = request.Header("x-request-id");
  const bool safe = !sent.empty() && sent.size() <= 128 &&
                    std::ranges::all_of(sent, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; });
  if (safe) return std::string(sent);
  ++ids_;
  return fmt::format("{:016x}{:08x}", KeyedRandom(id_key_, ids_), static_cast<uint32_t>(ids_));
}

HttpHeaders HttpApi::CommonHeaders(const HttpRequest& request) {
  HttpHeaders headers = CorsHeaders(request);
  headers.emplace_back("X-Request-Id", RequestId(request));
  return headers;
}

HttpResponse HttpApi::Json(const HttpRequest& request, int status, std::string body) {
  HttpResponse response{status, CommonHeaders(request), std::move(body)};
  response.headers.emplace_back("Content-Type", "application/json");
  return response;
}

HttpResponse HttpApi::Refusal(const HttpRequest& request, const Error& error) {
  HttpError http = ToOpenAiError(error);
  HttpResponse response = Json(request, http.status, std::move(http.body));
  response.headers.insert(response.headers.end(), http.headers.begin(), http.headers.end());
  return response;
}

HttpResponse HttpApi::OnProtocolError(int status, std::string_view message) {
  Error error{ErrorCode::kInvalidArgument, std::string(message), {}, 0};
  if (status == 413) error.code = ErrorCode::kTooLarge;
  if (status == 503) error = {ErrorCode::kOverloaded, std::string(message), {}, 1000};
  HttpError http = ToOpenAiError(error);
  HttpResponse response{status, {{"Content-Type", "application/json"}}, std::move(http.body)};
  response.headers.insert(response.headers.end(), http.headers.begin(), http.headers.end());
  return response;
}

std::optional<HttpResponse> HttpApi::OnHeaders(const HttpRequest& request) {
  if (keys_.open()) {
    if (Status host = CheckHostHeader(request.Header("host"), options_.host); !host) return Refusal(request, host.error());
  }
  if (request.method == "OPTIONS") {
    HttpResponse response{204, CommonHeaders(request), ""};
    const HttpHeaders preflight = PreflightHeaders(request);
    response.headers.insert(response.headers.end(), preflight.begin(), preflight.end());
    return response;
  }
  bool path_exists = false;
  const Route* route = FindRoute(request.path, request.method, &path_exists);
  if (route == nullptr) {
    if (!path_exists) {
      return Refusal(request, {ErrorCode::kNotFound, fmt::format("There is nothing at {}. The API is at /v1/chat/completions, /v1/completions and /v1/models.",
                                                                 EscapeForLog(request.path, 100)), {}, 0});
    }
    HttpResponse response = Refusal(request, {ErrorCode::kInvalidArgument, fmt::format("{} is not allowed here.", EscapeForLog(request.method, 16)), {}, 0});
    response.status = 405;
    return response;
  }
  if (route->needs_key) {
    if (auto identity = keys_.Authenticate(request.Header("authorization")); !identity) {
      HttpResponse response = Refusal(request, identity.error());
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
  }
  if (request.method == "POST" && !IsJsonContentType(request.Header("content-type"))) {
    HttpResponse response = Refusal(request, {ErrorCode::kInvalidArgument, "The body must be JSON: send Content-Type: application/json.", {}, 0});
    response.status = 415;
    return response;
  }
  return std::nullopt;
}

void HttpApi::OnRequest(std::shared_ptr<HttpExchange> exchange) {
  bool path_exists = false;
  const Route* route = FindRoute(exchange->request().path, exchange->request().method, &path_exists);
  if (route == nullptr) return;  // OnHeaders has answered; dropping the exchange answers 500 if it has not
  (this->*route->handle)(std::move(exchange));
}

void HttpApi::Generate(std::shared_ptr<HttpExchange> exchange, GenerationRequest::Kind kind) {
  const HttpRequest& request = exchange->request();
  auto identity = keys_.Authenticate(request.Header("authorization"));
  if (!identity) return exchange->Respond(Refusal(request, identity.error()));
  HttpHeaders headers = CorsHeaders(request);
  std::string id = RequestId(request);
  headers.emplace_back("X-Request-Id", id);
  ResponderContext context{loop_, pipeline_, clock_, model_ != nullptr ? model_->description().fingerprint : "", std::move(headers)};
  GenerationResponder::Run(std::move(context), kind, std::move(*identity), std::move(id), std::move(exchange));
}

HealthState HttpApi::State() const {
  if (draining_) return HealthState::kDraining;
  if (model_ == nullptr) return HealthState::kLoading;
  const EngineStats& stats = model_->engine().stats();
  const bool busy = model_->engine().inside() > 0;
  if (busy && clock_.Now() - stats.last_progress.load(std::memory_order_relaxed) > kStalledAfter) return HealthState::kFailed;
  return HealthState::kOk;
}

// Live: 200 while the process can do its work, also while it loads or drains.
void HttpApi::Health(std::shared_ptr<HttpExchange> exchange) {
  const HealthState state = State();
  exchange->Respond(Json(exchange->request(), state == HealthState::kFailed ? 503 : 200, HealthBody(state)));
}

// Ready: 200 only while a chat would be taken.
void HttpApi::Ready(std::shared_ptr<HttpExchange> exchange) {
  const HealthState state = State();
  HttpResponse response = Json(exchange->request(), HealthHttpStatus(state), HealthBody(state));
  if (response.status != 200) response.headers.emplace_back("Retry-After", "1");
  exchange->Respond(std::move(response));
}

void HttpApi::Version(std::shared_ptr<HttpExchange> exchange) { exchange->Respond(Json(exchange->request(), 200, VersionBody(kVersion))); }

void HttpApi::Metrics(std::shared_ptr<HttpExchange> exchange) {
  HttpResponse response{200, CommonHeaders(exchange->request()), metrics_.Text()};
  response.headers.emplace_back("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  exchange->Respond(std::move(response));
}

std::vector<ModelCard> HttpApi::Cards() const {
  std::vector<ModelCard> cards;
  for (const std::string& name : options_.model_names) {
    ModelCard card{.id = name, .created = options_.created, .root = cards.empty() ? "" : options_.model_names[0]};
    card.status = model_ != nullptr ? ModelStatus::kLoaded : ModelStatus::kLoading;
    if (model_ != nullptr) {
      card.max_model_len = std::min(model_->description().context, model_->kv_tokens());
      card.n_ctx_train = model_->trained_context();
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

void HttpApi::Models(std::shared_ptr<HttpExchange> exchange) { exchange->Respond(Json(exchange->request(), 200, ModelsListBody(Cards()))); }

void HttpApi::OneModel(std::shared_ptr<HttpExchange> exchange) {
  const std::string name = PercentDecode(exchange->request().path.substr(kModelsPrefix.size()));
  for (const ModelCard& card : Cards()) {
    if (card.id == name) return exchange->Respond(Json(exchange->request(), 200, ModelBody(card)));
  }
  exchange->Respond(Refusal(exchange->request(), ModelNotFoundError(name, options_.model_names)));
}

void HttpApi::DeleteModel(std::shared_ptr<HttpExchange> exchange) {
  exchange->Respond(Refusal(exchange->request(), {ErrorCode::kPermissionDenied, "Models cannot be deleted over the API; use `headrace rm` on the machine.", {}, 0}));
}

void HttpApi::Tokenize(std::shared_ptr<HttpExchange> exchange) {
  if (model_ == nullptr) return exchange->Respond(Refusal(exchange->request(), {ErrorCode::kUnavailable, "The model is still loading.", {}, 1000}));
  const bool posted = text_pool_.Post([this, exchange, model = model_] {
    auto answer = [&]() -> Result<std::string> {
      HR_ASSIGN_OR_RETURN(const TokenizeRequest request, ParseTokenizeRequest(exchange->request().body, {}));
      HR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, model->preparer().Tokenize(request));
      std::vector<std::string> texts;
      for (int32_t id : ids) texts.emplace_back(model->tokenizer().TokenText(id));
      return TokenizeBody(ids, model->description().context, request.return_token_strs ? &texts : nullptr);
    }();
    loop_.Post([this, exchange, answer = std::move(answer)]() mutable {
      exchange->Respond(answer ? Json(exchange->request(), 200, std::move(*answer)) : Refusal(exchange->request(), answer.error()));
    });
  });
  if (!posted) exchange->Respond(Refusal(exchange->request(), {ErrorCode::kOverloaded, "Too many requests are waiting to be read. Retry later.", {}, 1000}));
}

void HttpApi::Detokenize(std::shared_ptr<HttpExchange> exchange) {
  if (model_ == nullptr) return exchange->Respond(Refusal(exchange->request(), {ErrorCode::kUnavailable, "The model is still loading.", {}, 1000}));
  auto request = ParseDetokenizeRequest(exchange->request().body, {});
  if (!request) return exchange->Respond(Refusal(exchange->request(), request.error()));
  const Tokenizer& tokenizer = model_->tokenizer();
  if (Status valid = ValidateTokenIds(*request, tokenizer.vocab_size()); !valid) return exchange->Respond(Refusal(exchange->request(), valid.error()));
  StreamDecoder decoder;
  for (int32_t id : request->tokens) decoder.Append(tokenizer.TokenBytes(id));
  std::string text = decoder.Flush();
  if (tokenizer.StripsLeadingSpace() && text.starts_with(' ')) text.erase(0, 1);
  exchange->Respond(Json(exchange->request(), 200, DetokenizeBody(text)));
}

}  // namespace headrace
