#include "server/http_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <exception>

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
constexpr int64_t kLongestDeadlineMs = INT64_MAX / 1'000'000;
constexpr std::string_view kModelsPrefix = "/v1/models/";
constexpr std::string_view kDoubleSlash = "//";

// A base URL that ends with a slash makes "//v1/models" or "/v1//models" (T1).
std::string Canonical(std::string_view path) {
  std::string out(path);
  for (size_t at; (at = out.find(kDoubleSlash)) != std::string::npos;) out.erase(at, 1);
  if (out.size() > 1 && out.ends_with('/')) out.pop_back();
  return out;
}

Result<std::optional<int64_t>> DeadlineHeader(const HttpRequest& request) {
  const std::string_view text = request.Header(kDeadlineHeader);
  if (text.empty()) return std::nullopt;
  int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || end != text.data() + text.size() || ms < 1 || ms > kLongestDeadlineMs)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("The header {} must be a whole number of milliseconds from now, 1 to {}.", kDeadlineHeader,
                            kLongestDeadlineMs),
                kDeadlineHeader);
  return ms;
}

Error NotLoaded() { return {ErrorCode::kUnavailable, "The model is still loading. Retry in a moment.", {}, 1000}; }

}  // namespace

const HttpApi::Route HttpApi::kRoutes[] = {
    {"/v1/chat/completions", "POST", true, &HttpApi::Chat},
    {"/v1/completions", "POST", true, &HttpApi::Completions},
    {"/v1/models", "GET", true, &HttpApi::Models},
    {"/tokenize", "POST", true, &HttpApi::Tokenize},
    {"/detokenize", "POST", true, &HttpApi::Detokenize},
    {"/health", "GET", false, &HttpApi::Health},
    {"/ready", "GET", false, &HttpApi::Ready},
    {"/metrics", "GET", false, &HttpApi::Metrics},
    {"/version", "GET", false, &HttpApi::Version},
    {"/ping", "GET", false, &HttpApi::Health},
};

HttpApi::HttpApi(const HttpApiOptions& options, const KeyStore& keys, EventLoop& loop, const Clock& clock,
                 Pipeline& pipeline, TextPool& text_pool, MetricsRegistry& metrics)
    : options_(options),
      keys_(keys),
      loop_(loop),
      clock_(clock),
      pipeline_(pipeline),
      text_pool_(text_pool),
      metrics_(metrics),
      answers_(loop),
      id_key_(EntropySeed()) {}

// `path` is canonical.
const HttpApi::Route* HttpApi::FindRoute(std::string_view path, std::string_view method, bool* path_exists) const {
  static constexpr Route kOneModel{"/v1/models/{id}", "GET", true, &HttpApi::OneModel},
      kDeleteModel{"/v1/models/{id}", "DELETE", true, &HttpApi::DeleteModel};
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

std::string HttpApi::MethodsOf(std::string_view path) {
  if (path.starts_with(kModelsPrefix)) return "GET, HEAD, DELETE, OPTIONS";
  for (const Route& route : kRoutes) {
    if (path == route.path) return std::string_view(route.method) == "GET" ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  }
  return "OPTIONS";
}

std::string HttpApi::RequestId(const HttpRequest& request) {
  const std::string_view sent = request.Header("x-request-id");
  const bool safe = !sent.empty() && sent.size() <= 128 && std::ranges::all_of(sent, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (safe) return std::string(sent);
  ++ids_;
  return fmt::format("{:016x}{:08x}", KeyedRandom(id_key_, ids_), static_cast<uint32_t>(ids_));
}

HttpHeaders HttpApi::AnswerHeaders(const HttpRequest& request) {
  HttpHeaders headers = CorsHeaders(request, options_.allowed_origins);
  headers.emplace_back("X-Request-Id", RequestId(request));
  return headers;
}

HttpResponse HttpApi::Json(const HttpRequest& request, int status, std::string body) {
  HttpResponse response{status, AnswerHeaders(request), std::move(body)};
  response.headers.emplace_back("Content-Type", "application/json");
  return response;
}

HttpResponse HttpApi::Refusal(const HttpRequest& request, const Error& error) {
  HttpError http = ToOpenAiError(error);
  HttpResponse response = Json(request, http.status, std::move(http.body));
  response.headers.insert(response.headers.end(), http.headers.begin(), http.headers.end());
  return response;
}

HttpResponse HttpApi::JsonOr(const HttpRequest& request, Result<std::string> body) {
  return body ? Json(request, 200, std::move(*body)) : Refusal(request, body.error());
}

void HttpApi::Note(std::string_view route, const HttpRequest& request, const HttpResponse& response) {
  metrics_.Add("headrace_requests_total", "Finished requests by route and status.",
               {{"route", std::string(route)}, {"status", std::to_string(response.status)}});
  // Probes and scrapers ask every second.
  const bool probe =
      response.status == 200 && (route == "/health" || route == "/ready" || route == "/metrics" || route == "/ping");
  LogEvent(probe ? spdlog::level::debug : spdlog::level::info, "request",
           {{"id", FindHeader(response.headers, "X-Request-Id")},
            {"route", route},
            {"method", request.method},
            {"path", request.path},
            {"status", response.status}});
}

void HttpApi::Answer(HttpExchange& exchange, HttpResponse response) {
  bool path_exists = false;
  const Route* route = FindRoute(Canonical(exchange.request().path), exchange.request().method, &path_exists);
  Note(route != nullptr ? route->path : "other", exchange.request(), response);
  exchange.Respond(std::move(response));
}

HttpResponse HttpApi::OnProtocolError(int status, std::string_view message) {
  Error error{ErrorCode::kInvalidArgument, std::string(message), {}, 0};
  if (status == 413) error.code = ErrorCode::kTooLarge;
  if (status == 503) error = {ErrorCode::kOverloaded, std::string(message), {}, 1000};
  HttpError http = ToOpenAiError(error);
  static const HttpRequest kUnread;
  HttpResponse response = Json(kUnread, status, std::move(http.body));
  response.headers.insert(response.headers.end(), http.headers.begin(), http.headers.end());
  Note("protocol", kUnread, response);
  return response;
}

std::optional<HttpResponse> HttpApi::OnHeaders(const HttpRequest& request) {
  std::optional<HttpResponse> refusal = Refuse(request);
  if (refusal) Note(refusal->status == 204 ? "preflight" : "refused", request, *refusal);
  return refusal;
}

std::optional<HttpResponse> HttpApi::Refuse(const HttpRequest& request) {
  if (keys_.open()) {
    if (Status host = CheckHostHeader(request.Header("host"), options_.host, options_.allowed_hosts); !host)
      return Refusal(request, host.error());
  }
  if (request.method == "OPTIONS") {
    HttpResponse response{204, AnswerHeaders(request), ""};
    const HttpHeaders preflight = PreflightHeaders(request, options_.allowed_origins);
    response.headers.insert(response.headers.end(), preflight.begin(), preflight.end());
    return response;
  }
  bool path_exists = false;
  const Route* route = FindRoute(Canonical(request.path), request.method, &path_exists);
  if (route == nullptr) return RefuseRoute(request, path_exists);
  if (route->needs_key) {
    if (auto identity = keys_.Authenticate(request.Header("authorization")); !identity) {
      HttpResponse response = Refusal(request, identity.error());
      response.headers.emplace_back("WWW-Authenticate", "Bearer");
      return response;
    }
  }
  if (request.method == "POST" && !IsJsonBody(request, options_.allowed_origins)) {
    HttpResponse response = Refusal(
        request,
        {ErrorCode::kInvalidArgument, "The body must be JSON in UTF-8: send Content-Type: application/json.", {}, 0});
    response.status = 415;
    return response;
  }
  return std::nullopt;
}

HttpResponse HttpApi::RefuseRoute(const HttpRequest& request, bool path_exists) {
  if (!path_exists) {
    return Refusal(
        request,
        {ErrorCode::kNotFound,
         fmt::format("There is nothing at {}. The API is at /v1/chat/completions, /v1/completions and /v1/models.",
                     EscapeForLog(request.path, 100)),
         {},
         0});
  }
  const std::string methods = MethodsOf(Canonical(request.path));
  HttpResponse response =
      Refusal(request, {ErrorCode::kInvalidArgument,
                        fmt::format("{} is not allowed here; use {}.", EscapeForLog(request.method, 16), methods),
                        {},
                        0});
  response.status = 405;
  response.headers.emplace_back("Allow", methods);
  return response;
}

void HttpApi::OnRequest(std::shared_ptr<HttpExchange> exchange) {
  bool path_exists = false;
  const Route* route = FindRoute(Canonical(exchange->request().path), exchange->request().method, &path_exists);
  if (route == nullptr) return;  // OnHeaders has answered; dropping the exchange answers 500 if it has not
  (this->*route->handle)(std::move(exchange));
}

void HttpApi::Generate(std::shared_ptr<HttpExchange> exchange, GenerationRequest::Kind kind) {
  const HttpRequest& request = exchange->request();
  auto identity = keys_.Authenticate(request.Header("authorization"));
  if (!identity) return Answer(*exchange, Refusal(request, identity.error()));
  HttpHeaders headers = CorsHeaders(request, options_.allowed_origins);
  RequestHead head{.id = RequestId(request)};
  headers.emplace_back("X-Request-Id", head.id);
  auto deadline_ms = DeadlineHeader(request);
  if (!deadline_ms) return Answer(*exchange, Refusal(request, deadline_ms.error()));
  head.deadline_ms = *deadline_ms;
  ResponderContext context{loop_,
                           pipeline_,
                           clock_,
                           answers_,
                           options_.keep_alive,
                           model_ != nullptr ? model_->description().fingerprint : "",
                           std::move(headers)};
  GenerationResponder::Run(std::move(context), kind, std::move(*identity), std::move(head), std::move(exchange));
}

HealthState HttpApi::State() const {
  if (draining_) return HealthState::kDraining;
  if (model_ == nullptr) return HealthState::kLoading;
  const EngineStats& stats = model_->engine().stats();
  const bool busy = model_->engine().inside() > 0;
  if (busy && clock_.Now() - stats.last_progress.load(std::memory_order_relaxed) > options_.stalled_after)
    return HealthState::kFailed;
  return HealthState::kOk;
}

// Live: 200 while the process can do its work, also while it loads or drains.
void HttpApi::Health(std::shared_ptr<HttpExchange> exchange) {
  const HealthState state = State();
  Answer(*exchange, Json(exchange->request(), state == HealthState::kFailed ? 503 : 200, HealthBody(state)));
}

// Ready: 200 only while a chat would be taken.
void HttpApi::Ready(std::shared_ptr<HttpExchange> exchange) {
  const HealthState state = State();
  HttpResponse response = Json(exchange->request(), HealthHttpStatus(state), HealthBody(state));
  if (response.status != 200) response.headers.emplace_back("Retry-After", "1");
  Answer(*exchange, std::move(response));
}

void HttpApi::Version(std::shared_ptr<HttpExchange> exchange) {
  Answer(*exchange, Json(exchange->request(), 200, VersionBody(kVersion)));
}

void HttpApi::Metrics(std::shared_ptr<HttpExchange> exchange) {
  HttpResponse response{200, AnswerHeaders(exchange->request()), metrics_.Text()};
  response.headers.emplace_back("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
  Answer(*exchange, std::move(response));
}

std::vector<ModelCard> HttpApi::Cards() const {
  std::vector<ModelCard> cards;
  for (const std::string& name : options_.model_names) {
    ModelCard card{.id = name, .created = options_.created, .root = cards.empty() ? "" : options_.model_names[0]};
    card.status = model_ != nullptr ? ModelStatus::kLoaded : ModelStatus::kLoading;
    if (model_ != nullptr) {
      card.max_model_len = model_->served_context();
      card.n_ctx_train = model_->trained_context();
      card.sampling_defaults = model_->sampling_defaults();
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

void HttpApi::Models(std::shared_ptr<HttpExchange> exchange) {
  Answer(*exchange, Json(exchange->request(), 200, ModelsListBody(Cards())));
}

void HttpApi::OneModel(std::shared_ptr<HttpExchange> exchange) {
  std::string_view path = exchange->request().path;
  path.remove_prefix(std::min(path.find("models/") + 7, path.size()));
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::string name = PercentDecode(path);
  for (const ModelCard& card : Cards()) {
    if (card.id == name) return Answer(*exchange, Json(exchange->request(), 200, ModelBody(card)));
  }
  Answer(*exchange, Refusal(exchange->request(), ModelNotFoundError(name, options_.model_names)));
}

void HttpApi::DeleteModel(std::shared_ptr<HttpExchange> exchange) {
  Answer(*exchange,
         Refusal(exchange->request(), {ErrorCode::kPermissionDenied,
                                       "Models cannot be deleted over the API; use `headrace rm` on the machine.",
                                       {},
                                       0}));
}

void HttpApi::Tokenize(std::shared_ptr<HttpExchange> exchange) {
  AnswerFromPool(std::move(exchange),
                 [this, model = model_](const std::string& body) { return TokenizeText(*model, body); });
}

void HttpApi::Detokenize(std::shared_ptr<HttpExchange> exchange) {
  AnswerFromPool(std::move(exchange),
                 [this, model = model_](const std::string& body) { return DetokenizeIds(*model, body); });
}

// The exchange travels through the pool and back: it must die on the loop.
void HttpApi::AnswerFromPool(std::shared_ptr<HttpExchange> exchange,
                             std::move_only_function<Result<std::string>(const std::string& body)> work) {
  if (draining_)
    return Answer(
        *exchange,
        Refusal(exchange->request(),
                {ErrorCode::kUnavailable, "The server is shutting down. Send the request to another one.", {}, 1000}));
  if (model_ == nullptr) return Answer(*exchange, Refusal(exchange->request(), NotLoaded()));
  const std::shared_ptr<HttpExchange> here = exchange;
  const bool posted = text_pool_.Post([this, exchange = std::move(exchange), work = std::move(work)]() mutable {
    auto body = std::make_shared<Result<std::string>>();
    try {
      *body = work(exchange->request().body);
    } catch (const std::exception& e) {  // no memory, or a library's own
      *body = Fail(ErrorCode::kInternal, e.what());
    }
    loop_.Post([this, exchange = std::move(exchange), body = std::move(body)] {
      --text_jobs_;
      Answer(*exchange, JsonOr(exchange->request(), std::move(*body)));
      answers_.Watch(exchange);
    });
  });
  if (posted) {
    ++text_jobs_;
  } else {
    Answer(*here,
           Refusal(here->request(),
                   {ErrorCode::kOverloaded, "Too many requests are waiting to be read. Retry later.", {}, 1000}));
  }
}

Result<std::string> HttpApi::TokenizeText(const ModelService& model, const std::string& body) const {
  HR_ASSIGN_OR_RETURN(const TokenizeRequest request, ParseTokenizeRequest(body, {}));
  if (!request.model.empty()) HR_RETURN_IF_ERROR(pipeline_.CheckModel(request.model));
  HR_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, model.preparer().Tokenize(request));
  std::vector<std::string> texts;
  if (request.return_token_strs) {
    for (int32_t id : ids) texts.emplace_back(model.tokenizer().TokenText(id));
  }
  return TokenizeBody(ids, model.served_context(), request.return_token_strs ? &texts : nullptr);
}

Result<std::string> HttpApi::DetokenizeIds(const ModelService& model, const std::string& body) const {
  HR_ASSIGN_OR_RETURN(const DetokenizeRequest request, ParseDetokenizeRequest(body, {}));
  if (!request.model.empty()) HR_RETURN_IF_ERROR(pipeline_.CheckModel(request.model));
  const Tokenizer& tokenizer = model.tokenizer();
  HR_RETURN_IF_ERROR(ValidateTokenIds(request, tokenizer.vocab_size()));
  StreamDecoder decoder;
  for (int32_t id : request.tokens) decoder.Append(tokenizer.TokenBytes(id));
  std::string text = decoder.Flush();
  if (tokenizer.StripsLeadingSpace() && text.starts_with(' ')) text.erase(0, 1);
  return DetokenizeBody(text);
}

}  // namespace headrace
