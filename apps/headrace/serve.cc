// headrace serve [MODEL]
#include "server/serve.h"

#include <fmt/format.h>

#include "api_key.h"
#include "base/log.h"
#include "catalog/catalog.h"
#include "command.h"
#include "exit_code.h"
#include "model_choice.h"

namespace headrace {
namespace {

bool IsLoopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// MODEL as a word or --model; two of them are refused by name.
Result<std::string> WantedModel(const Invocation& invocation) {
  const Settings& settings = invocation.settings;
  std::vector<std::string> models = invocation.words;
  const bool by_flag = settings.Get("model").origin == SettingOrigin::kFlag;
  if (by_flag || models.empty()) models.push_back(settings.Text("model"));
  if (models.size() > 1)
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "one model a server for now: '{}' was given after '{}'. Start a second server for it on another --port",
            EscapeForLog(models[1], 60), EscapeForLog(models[0], 60)),
        "model");
  return models[0];
}

bool LooksLikeModel(const Settings& settings, const std::string& word) {
  if (word.empty()) return false;
  if (word.starts_with("script:") || ClassifyReference(word) != ModelReference::kName) return true;
  const ModelsFolder folder = FolderOf(settings);
  const auto catalog = Catalog::Load(folder.path());
  return catalog && (catalog->Find(word) != nullptr || ResolveModel(word, *catalog, folder));
}

// `serve --served-model-name NAME MODEL`: the flag takes both words, and another model would be served.
Status CheckTakenName(const Invocation& invocation) {
  const Settings& settings = invocation.settings;
  if (!invocation.words.empty() || settings.Get("model").origin == SettingOrigin::kFlag) return {};
  if (!LooksLikeModel(settings, invocation.last_taken)) return {};
  const std::string word = EscapeForLog(invocation.last_taken, 60);
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} takes '{}' as a name: is it the MODEL? Write MODEL first, or --served-model-name=NAME",
                          settings.Get("served-model-name").place, word),
              "served-model-name");
}

Status CheckExposure(const ServeOptions& options) {
  if (IsLoopback(options.host) || !options.api_key_file.empty() || options.insecure) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--host {} lets other machines in without a key. Give --api-key-file FILE or "
                          "HEADRACE_API_KEY, or --insecure if "
                          "that is what you want",
                          EscapeForLog(options.host, 60)),
              "host");
}

Status CheckTls(const ServeOptions& options) {
  if (options.tls_cert.empty() == options.tls_key.empty()) return {};
  return Fail(ErrorCode::kInvalidArgument, "TLS needs both --tls-cert and --tls-key",
              options.tls_cert.empty() ? "tls-cert" : "tls-key");
}

ServeOptions OptionsFrom(const Settings& s) {
  ServeOptions o;
  o.served_model_names = s.Texts("served-model-name");
  o.host = s.Text("host");
  o.port = static_cast<uint16_t>(s.Integer("port"));
  o.allowed_hosts = s.Texts("allowed-host");
  o.allowed_origins = s.Texts("allowed-origin");
  o.api_key_file = s.Text("api-key-file");
  o.chat_template_file = s.Text("chat-template");
  o.tls_cert = s.Text("tls-cert");
  o.tls_key = s.Text("tls-key");
  o.isa = s.Text("isa");
  o.threads = static_cast<int>(s.Integer("threads"));
  o.ctx = s.Integer("ctx");
  o.kv_memory_bytes = s.Bytes("kv-memory");
  o.kv_int8 = s.Text("kv-type") == "int8";
  o.pack_cache = s.Text("pack-cache");
  o.max_batch_tokens = static_cast<int>(s.Integer("max-batch-tokens"));
  o.prompt_batch_tokens = static_cast<int>(s.Integer("prompt-batch-tokens"));
  o.max_sequences = static_cast<int>(s.Integer("max-sequences"));
  o.max_waiting = static_cast<int>(s.Integer("max-waiting"));
  o.prefix_cache = s.Text("prefix-cache") == "on";
  o.speculation_tokens = s.Text("speculation") == "off" ? 0 : static_cast<int>(s.Integer("speculation-tokens"));
  o.cache_dir = s.Text("cache-dir");
  o.cache_disk_bytes = s.Bytes("cache-disk");
  o.cache_memory_bytes = s.Bytes("cache-memory");
  o.cache_key_file = s.Text("cache-key-file");
  o.request_timeout_s = s.Number("request-timeout");
  o.queue_timeout_s = s.Number("queue-timeout");
  o.itl_target_s = s.Number("itl-target");
  o.brown_out_s = s.Number("brown-out");
  o.decision_log = s.Text("decision-log");
  o.drain_timeout_s = s.Number("drain-timeout");
  o.keep_alive_s = s.Number("keep-alive");
  o.insecure = s.Switch("insecure");
  o.no_vllm_metrics = s.Switch("no-vllm-metrics");
  return o;
}

Status Prepare(const Invocation& invocation, ServeOptions& options) {
  const Settings& settings = invocation.settings;
  HR_ASSIGN_OR_RETURN(const std::string wanted, WantedModel(invocation));
  HR_RETURN_IF_ERROR(CheckTakenName(invocation));
  if (settings.Has("api-key")) {
    if (!options.api_key_file.empty())
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("give either {} or {}", settings.Get("api-key-file").place, settings.Get("api-key").place),
          "api-key");
    HR_ASSIGN_OR_RETURN(options.api_key_file, KeyFileInMemory(settings.Text("api-key")));
  }
  HR_RETURN_IF_ERROR(CheckExposure(options));
  HR_RETURN_IF_ERROR(CheckTls(options));
  HR_ASSIGN_OR_RETURN(ModelChoice model, ChooseModel(settings, wanted));
  options.model = std::move(model.path);
  // Clients use the name that was typed here.
  if (options.served_model_names.empty() && !model.name.empty()) options.served_model_names = {std::move(model.name)};
  return {};
}

}  // namespace

int ServeCommand(const Invocation& invocation) {
  StartLog(invocation.settings.Text("log-level"),
           invocation.settings.Switch("log-json") ? LogFormat::kJson : LogFormat::kText);
  ServeOptions options = OptionsFrom(invocation.settings);
  if (const Status ready = Prepare(invocation, options); !ready) return Complain(ready.error());
  return RunServe(options);
}

}  // namespace headrace
