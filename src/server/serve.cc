#include "server/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/exit_code.h"
#include "base/file.h"
#include "base/log.h"
#include "queueing/admission.h"
#include "server/cache_tiers.h"
#include "server/client_lines.h"
#include "server/http_api.h"
#include "server/http_guard.h"
#include "server/local_backend.h"
#include "server/serve_metrics.h"

namespace headrace {
namespace {

// From the moment when requests are cut off to the end of the process, whatever its threads still do.
constexpr std::chrono::seconds kLeaveGrace{2};

// Everything that lives while the server runs, in order of construction.
class Serving {
 public:
  explicit Serving(const ServeOptions& options)
      : options_(options),
        text_pool_(1),
        pipeline_(
            PipelineOptionsOf(options), clock_, text_pool_, [this](auto work) { loop_.Post(std::move(work)); },
            metrics_) {}

  // In order of use: the pool's work borrows pipeline and model, exchanges their server, answers their backend.
  ~Serving() {
    if (loader_.joinable()) loader_.join();
    text_pool_.Stop();
    server_.reset();
    api_.reset();
    if (model_ != nullptr) model_->Stop();  // its steps ring the backend's bell
    backend_.reset();
    model_.reset();
  }

  int Run() {
    if (Status names = CheckAllowedNames(options_.allowed_hosts, options_.allowed_origins); !names)
      return Refuse(names.error());
    if (!options_.api_key_file.empty()) {
      auto keys = KeyStore::Load(options_.api_key_file);
      if (!keys) return Refuse(keys.error());
      keys_ = std::move(*keys);
    }
    const HttpApiOptions api{.model_names = ModelNames(options_),
                             .host = options_.host,
                             .allowed_hosts = options_.allowed_hosts,
                             .allowed_origins = options_.allowed_origins,
                             .created = clock_.UnixSeconds(),
                             .keep_alive = Ns(options_.keep_alive_s),
                             .stalled_after = Ns(options_.stalled_after_s)};
    api_ = std::make_unique<HttpApi>(api, keys_, loop_, clock_, pipeline_, text_pool_, metrics_);
    HttpServerOptions http{.host = options_.host,
                           .port = options_.port,
                           .tls_cert_file = options_.tls_cert,
                           .tls_key_file = options_.tls_key};
    http.body_bytes_max = ApiLimits{}.body_bytes_max;
    http.connections_max = ConnectionsMax(options_);
    auto server = HttpServer::Listen(loop_, http, *api_);
    if (!server) return RefuseToListen(server.error());
    server_ = std::move(*server);
    std::signal(SIGPIPE, SIG_IGN);  // a closed pipe on stdout is no reason to end
    loop_.OnSignal({SIGTERM, SIGINT}, [this](int) { Drain(); });
    metrics_.Watch("headrace_requests_under_way", "Generation requests in the pipeline.", {}, false,
                   [this] { return pipeline_.under_way(); });
    if (!options_.quiet) SayListening();
    if (options_.on_listening) options_.on_listening(server_->port());
    loader_ = std::thread([this] { Load(); });
    loop_.Run();
    LeaveLoader();
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
    p.request_timeout = Ns(options.request_timeout_s);
    p.queue_timeout = Ns(options.queue_timeout_s);
    return p;
  }
  // Of everybody who may wait or run, and as many again: else one tenant's flood of requests holds every connection
  // while the line still has places for others. Fewer where the system allows fewer sockets.
  static int ConnectionsMax(const ServeOptions& options) {
    constexpr int64_t kLeast = 1024, kOtherFiles = 256;
    const int64_t inside = DefaultAdmissionLimits(options.max_waiting).places() + int64_t{options.max_sequences};
    const auto files = static_cast<int64_t>(std::min<uint64_t>(RaiseOpenFilesLimit(), INT32_MAX));
    return static_cast<int>(std::max<int64_t>(1, std::min(std::max(kLeast, 2 * inside), files - kOtherFiles)));
  }
  static TimeNs Ns(double seconds) { return static_cast<TimeNs>(std::min(seconds * 1e9, 4e18)); }

  int Refuse(const Error& error) {
    std::fprintf(stderr, "headrace: %s\n", error.message.c_str());
    return ExitCodeOf(error);
  }

  // Taken, forbidden, out of descriptors: the flags are right, this machine cannot do it now.
  int RefuseToListen(const Error& error) {
    const int code = Refuse(error);
    return code == kExitFailure ? kExitCannotServe : code;
  }

  // On the loader's thread.
  void Load() {
    const TimeNs begin = clock_.Now();
    auto model = std::make_shared<Result<std::unique_ptr<ModelService>>>(ModelService::Load(options_, clock_));
    loaded_ = true;
    loop_.Post([this, model, begin] {
      if (!*model) {
        exit_code_ = Refuse(model->error());
        return loop_.Stop();
      }
      model_ = std::move(**model);
      Open(begin);
    });
  }

  // Stopped while the model loads: reading the file cannot be cut short, and nothing of this process needs saving.
  void LeaveLoader() const {
    if (loaded_ || options_.embedded) return;
    std::fflush(nullptr);
    std::_Exit(exit_code_);
  }

  void Open(TimeNs begin) {
    backend_ = std::make_unique<LocalBackend>(loop_, model_->engine(), model_->tokenizer());
    WatchEngine(metrics_, model_->engine(), ModelNames(options_)[0], !options_.no_vllm_metrics);
    WatchTiers(metrics_, model_->second_tier(), model_->description().block_bytes);
    api_->SetModel(model_.get());
    if (draining_) return;
    pipeline_.Open(model_->preparer(), *backend_);
    if (!options_.quiet) Banner(static_cast<double>(clock_.Now() - begin) / kNsPerSecond);
  }

  std::string Url() const {
    const bool v6 = options_.host.find(':') != std::string::npos;
    return fmt::format("{}://{}{}{}:{}", server_->tls() ? "https" : "http", v6 ? "[" : "", options_.host, v6 ? "]" : "",
                       server_->port());
  }

  void SayListening() const {
    std::printf("listening on %s (%s); the model is loading\n", Url().c_str(),
                keys_.open() ? "no API key needed" : "API key needed");
    std::fflush(stdout);
  }

  void Banner(double load_seconds) const {
    const std::string name = ModelNames(options_)[0];
    const std::string lines = FirstRequestLines(
        {.url = Url(), .model = name, .chat = model_->preparer().has_chat_template(), .needs_key = !keys_.open()});
    std::printf("%s loaded in %.2f s\n%s\n\n%s", name.c_str(), load_seconds, model_->PlanLines().c_str(),
                lines.c_str());
    std::fflush(stdout);
  }

  // First signal: no new work, what runs goes on to its end. Second: what runs ends now, with an error that says so.
  void Drain() {
    if (draining_) return Cut("a second signal");
    draining_ = true;
    LOG_INFO("draining: {} requests under way; a second signal ends them", pipeline_.under_way());
    api_->SetDraining();
    pipeline_.Close();
    server_->StopAccepting();
    loop_.After(Ns(options_.drain_timeout_s), [this] { Cut("the time to drain is over"); });
    WaitForIdle();
  }

  // Every request under way ends with an error event and a proper end; WaitForIdle stops the loop once they are
  // written.
  void Cut(const char* why) {
    if (std::exchange(cut_, true)) return;
    if (pipeline_.under_way() > 0) exit_code_ = kExitFailure;
    LOG_WARN("{}: {} requests are ended", why, pipeline_.under_way());
    api_->FailAll({ErrorCode::kUnavailable, "The server was shut down before this request had ended.", {}, 1000});
    loop_.After(kNsPerSecond, [this] { loop_.Stop(); });
    if (!options_.embedded) LeaveAfter(kLeaveGrace, exit_code_);
  }

  // A step that hangs never ends, and the engine's thread cannot be joined before it does.
  static void LeaveAfter(std::chrono::seconds grace, int exit_code) {
    std::thread([grace, exit_code] {
      std::this_thread::sleep_for(grace);
      LOG_WARN("a step of the engine still runs; leaving without it");
      spdlog::default_logger()->flush();
      std::fflush(nullptr);
      std::_Exit(exit_code);
    }).detach();
  }

  void WaitForIdle() {
    if (pipeline_.under_way() == 0 && api_->all_written()) {
      server_->CloseIdle();
      // What is left are connections whose client has its answer and has not closed yet.
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
  std::atomic<bool> loaded_{false};
  bool draining_ = false;
  bool cut_ = false;
  int idle_rounds_ = 0;
  int exit_code_ = 0;
};

}  // namespace

int RunServe(const ServeOptions& options) { return Serving(options).Run(); }

}  // namespace headrace
