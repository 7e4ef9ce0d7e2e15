#include "server/serve.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "server/http_api.h"
#include "server/local_backend.h"
#include "server/serve_metrics.h"

namespace headrace {
namespace {

// Everything that lives while the server runs, in order of construction.
class Serving {
 public:
  explicit Serving(const ServeOptions& options)
      : options_(options), text_pool_(1), pipeline_(PipelineOptionsOf(options), clock_, text_pool_, [this](auto work) { loop_.Post(std::move(work)); }, metrics_) {}

  ~Serving() {
    if (loader_.joinable()) loader_.join();
    server_.reset();
    backend_.reset();
    model_.reset();
  }

  int Run() {
    if (!options_.api_key_file.empty()) {
      auto keys = KeyStore::Load(options_.api_key_file);
      if (!keys) return Refuse(keys.error());
      keys_ = std::move(*keys);
    }
    api_ = std::make_unique<HttpApi>(HttpApiOptions{.model_names = ModelNames(options_), .host = options_.host, .created = clock_.UnixSeconds()}, keys_, loop_, clock_,
                                     pipeline_, text_pool_, metrics_);
    HttpServerOptions http{.host = options_.host, .port = options_.port, .tls_cert_file = options_.tls_cert, .tls_key_file = options_.tls_key};
    auto server = HttpServer::Listen(loop_, http, *api_);
    if (!server) return Refuse(server.error());
    server_ = std::move(*server);
    loop_.OnSignal({SIGTERM, SIGINT}, [this](int) { Drain(); });
    loader_ = std::thread([this] { Load(); });
    loop_.Run();
    return exit_code_;
  }

 private:
  static std::vector<std::string> ModelNames(const ServeOptions& options) {
    if (!options.served_model_names.empty()) return options.served_model_names;
    return {std::filesystem::path(options.model).stem().string()};
  }
  static PipelineOptions PipelineOptionsOf(const ServeOptions& options) {
    PipelineOptions p;
    p.model_names = ModelNames(options);
    p.request_timeout = static_cast<TimeNs>(options.request_timeout_s * kNsPerSecond);
    p.queue_timeout = static_cast<TimeNs>(options.queue_timeout_s * kNsPerSecond);
    return p;
  }

  int Refuse(const Error& error) {
    std::fprintf(stderr, "headrace: %s\n", error.message.c_str());
    return kExitCannotServe;
  }

  // On the loader's thread.
  void Load() {
    const TimeNs begin = clock_.Now();
    auto model = std::make_shared<Result<std::unique_ptr<ModelService>>>(ModelService::Load(options_, clock_));
    loop_.Post([this, model, begin] {
      if (!*model) {
        exit_code_ = Refuse(model->error());
        return loop_.Stop();
      }
      model_ = std::move(**model);
      Open(begin);
    });
  }

  void Open(TimeNs begin) {
    backend_ = std::make_unique<LocalBackend>(loop_, model_->engine(), model_->tokenizer());
    WatchEngine(metrics_, model_->engine(), ModelNames(options_)[0], !options_.no_vllm_metrics);
    api_->SetModel(model_.get());
    if (draining_) return;
    pipeline_.Open(model_->preparer(), *backend_);
    if (!options_.quiet) Banner(static_cast<double>(clock_.Now() - begin) / kNsPerSecond);
  }

  void Banner(double load_seconds) const {
    const std::string name = ModelNames(options_)[0];
    const std::string url = fmt::format("{}://{}:{}", server_->tls() ? "https" : "http", options_.host, server_->port());
    std::printf("%s loaded in %.2f s\n%s\n\n", name.c_str(), load_seconds, model_->MemoryPlan().c_str());
    std::printf("listening on %s (%s)\n\n", url.c_str(), keys_.open() ? "no API key needed" : "API key needed");
    const char* auth = keys_.open() ? "" : " -H \"Authorization: Bearer $KEY\"";
    std::printf("curl %s/v1/chat/completions -H 'Content-Type: application/json'%s \\\n"
                "  -d '{\"model\": \"%s\", \"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of France?\"}]}'\n\n", url.c_str(), auth, name.c_str());
    std::printf("from openai import OpenAI\nclient = OpenAI(base_url=\"%s/v1\", api_key=\"%s\")\n"
                "print(client.chat.completions.create(model=\"%s\", messages=[{\"role\": \"user\", \"content\": \"Hello\"}]).choices[0].message.content)\n",
                url.c_str(), keys_.open() ? "none" : "KEY", name.c_str());
    std::fflush(stdout);
  }

  // First signal: no new work, what runs goes on to its end. Second: stop now.
  void Drain() {
    if (draining_) return loop_.Stop();
    draining_ = true;
    LOG_INFO("draining: {} requests under way; a second signal stops at once", pipeline_.under_way());
    api_->SetDraining();
    pipeline_.Close();
    server_->StopAccepting();
    loop_.After(static_cast<TimeNs>(options_.drain_timeout_s * kNsPerSecond), [this] { loop_.Stop(); });
    WaitForIdle();
  }
  void WaitForIdle() {
    if (pipeline_.under_way() == 0) {
      server_->CloseIdle();
      if (server_->open_connections() == 0 || ++idle_rounds_ > 20) return loop_.Stop();
    }
    loop_.After(10 * kNsPerMs, [this] { WaitForIdle(); });
  }

  const ServeOptions options_;
  SystemClock clock_;
  EventLoop loop_;
  MetricsRegistry metrics_;
  TextPool text_pool_;
  KeyStore keys_;
  Pipeline pipeline_;
  std::unique_ptr<HttpApi> api_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<ModelService> model_;
  std::unique_ptr<LocalBackend> backend_;
  std::thread loader_;
  bool draining_ = false;
  int idle_rounds_ = 0;
  int exit_code_ = 0;
};

}  // namespace

int RunServe(const ServeOptions& options) { return Serving(options).Run(); }

}  // namespace headrace
