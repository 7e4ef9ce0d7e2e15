#include "server/model_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/cpu/cpu_executor.h"
#include "executor/scripted/script.h"
#include "executor/scripted/scripted_executor.h"
#include "json/json.h"
#include "json/json_fields.h"
#include "server/cache_tiers.h"

namespace headrace {
namespace {

constexpr int64_t kLittleRoom = 512;  // tokens of prompt and answer: fewer are said when the server starts
constexpr std::string_view kScriptPrefix = "script:";
constexpr char kChatMl[] =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' "
    "}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

int32_t TokenId(const ModelFile& file, const char* key) {
  const auto id = file.MetaInt(std::string("tokenizer.ggml.") + key);
  return id && *id >= 0 && *id < INT32_MAX ? static_cast<int32_t>(*id) : -1;
}

// generation_config.json beside a Hugging Face model. GGUF has no such settings.
Result<SamplingDefaults> ReadSamplingDefaults(const ModelFile& file) {
  SamplingDefaults defaults;
  const std::string& text = file.Text(ModelFile::TextKind::kGenerationConfig);
  if (text.empty()) return defaults;
  const auto json = ParseJson(text, {});
  if (!json) return Fail(ErrorCode::kCorruptData, "generation_config.json: " + json.error().message);
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(*json, "generation_config.json"));
  HR_ASSIGN_OR_RETURN(defaults.temperature, fields.Number("temperature", 0, 2));
  HR_ASSIGN_OR_RETURN(defaults.top_p, fields.Number("top_p", 0, 1));
  HR_ASSIGN_OR_RETURN(defaults.min_p, fields.Number("min_p", 0, 1));
  HR_ASSIGN_OR_RETURN(defaults.top_k, fields.Integer("top_k", 0, INT32_MAX));
  HR_ASSIGN_OR_RETURN(defaults.repetition_penalty, fields.Number("repetition_penalty", 0.001, 10));
  return defaults;
}

// Names the file in an error about what it holds, where the message does not: a script's with the place in it.
Error WithFile(Error error, const ServeOptions& options) {
  const bool script = options.model.starts_with(kScriptPrefix);
  const std::string file = script ? options.model.substr(kScriptPrefix.size()) : options.model;
  const bool about_contents = script || error.code == ErrorCode::kCorruptData ||
                              error.code == ErrorCode::kUnsupported || error.code == ErrorCode::kNotFound;
  const bool about_template = !options.chat_template_file.empty() && error.message.contains(options.chat_template_file);
  if (!about_contents || about_template || error.message.contains(file)) return error;
  const std::string place = script && !error.field.empty() ? error.field + ": " : "";
  error.message = file + ": " + place + error.message;
  return error;
}

// Packed weights are about as large as the file. The executor compares exact figures; this comes before the tokenizer,
// which takes memory, too.
Status CheckFileFits(const ModelFile& file) {
  const uint64_t available = AvailableMemoryBytes();
  if (file.total_bytes() <= available) return {};
  return Fail(ErrorCode::kOverloaded,
              fmt::format("{} has {} MiB of weights, but only {} MiB of memory are free. Free some, raise the limit of "
                          "this process (ulimit -v, the container's), or choose a smaller model.",
                          file.name(), file.total_bytes() >> 20, available >> 20));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const ModelFile& file) {
  if (file.format() == ModelFile::Format::kSafetensors) {
    const std::string& json = file.Text(ModelFile::TextKind::kTokenizer);
    if (json.empty())
      return Fail(ErrorCode::kNotFound, "tokenizer.json is missing beside the weights", "tokenizer.json");
    return Tokenizer::FromJson(json, file.Text(ModelFile::TextKind::kTokenizerConfig));
  }
  Vocabulary v;
  const std::vector<std::string>* tokens = file.MetaStrings("tokenizer.ggml.tokens");
  if (tokens == nullptr)
    return Fail(ErrorCode::kCorruptData, "the file has no vocabulary (tokenizer.ggml.tokens)", "tokenizer.ggml.tokens");
  v.model = file.MetaString("tokenizer.ggml.model").value_or("");
  v.pre = file.MetaString("tokenizer.ggml.pre").value_or("default");
  v.tokens = *tokens;
  if (const auto* scores = file.MetaFloats("tokenizer.ggml.scores")) v.scores = *scores;
  if (const auto* types = file.MetaInts("tokenizer.ggml.token_type")) v.types.assign(types->begin(), types->end());
  if (const auto* merges = file.MetaStrings("tokenizer.ggml.merges")) v.merges = *merges;
  v.bos = TokenId(file, "bos_token_id");
  v.eos = TokenId(file, "eos_token_id");
  v.eot = TokenId(file, "eot_token_id");
  v.eom = TokenId(file, "eom_token_id");
  v.unk = TokenId(file, "unknown_token_id");
  v.pad = TokenId(file, "padding_token_id");
  v.add_bos = file.MetaBool("tokenizer.ggml.add_bos_token").value_or(v.model == "llama");
  v.add_eos = file.MetaBool("tokenizer.ggml.add_eos_token").value_or(false);
  v.add_space_prefix = file.MetaBool("tokenizer.ggml.add_space_prefix").value_or(true);
  return Tokenizer::FromVocabulary(std::move(v));
}

std::string ModelChatTemplate(const ModelFile& file) {
  if (file.format() == ModelFile::Format::kGguf) return file.MetaString("tokenizer.chat_template").value_or("");
  if (const std::string& text = file.Text(ModelFile::TextKind::kChatTemplate); !text.empty()) return text;
  const auto json = ParseJson(file.Text(ModelFile::TextKind::kTokenizerConfig), {});
  if (!json || !json->is_object()) return "";
  const auto it = json->find("chat_template");
  return it != json->end() && it->is_string() ? it->get<std::string>() : "";
}

// At least one context, even where that is more than a quarter: a smaller pool would refuse what the model can do.
uint64_t LeastKvBytes(const ModelConfig& config, KvType type, int64_t context) {
  return static_cast<uint64_t>(config.KvBytesPerToken(type)) * static_cast<uint64_t>(std::min<int64_t>(context, 4096));
}

uint64_t DefaultKvBytes(const ModelConfig& config, KvType type, int64_t context, int sequences_max,
                        uint64_t available_bytes) {
  const auto per_token = static_cast<uint64_t>(config.KvBytesPerToken(type));
  const uint64_t whole = per_token * static_cast<uint64_t>(context) * static_cast<uint64_t>(sequences_max);
  return std::max(std::min(whole, available_bytes / 4), LeastKvBytes(config, type, context));
}

// Nobody waits for the next token of such a step, but a newcomer and a cancellation wait for its end: half a second,
// for a machine of 10^12 operations a second. Larger steps read the weights less often (a tenth of a prompt's time at
// 1,024 rows, measured on SmolLM2); beyond that nothing is gained.
int PromptBatchTokens(const ModelConfig& config) {
  constexpr double kOperations = 0.5e12;
  constexpr int kLeast = 256, kMost = 1024;
  const double width = config.width;
  const double parameters =
      config.layers * width * (2.0 * config.q_width() + 2.0 * config.kv_width() + 3.0 * config.ffn_width);
  return static_cast<int>(std::clamp<double>(kOperations / (2 * parameters), kLeast, kMost)) / 64 * 64;
}

Result<std::unique_ptr<ModelService>> ModelService::Load(const ServeOptions& options, const Clock& clock) {
  std::unique_ptr<ModelService> service(new ModelService);
  const bool script = options.model.starts_with(kScriptPrefix);
  if (Status loaded = script ? service->LoadScript(options) : service->LoadModel(options); !loaded) {
    return Fail(WithFile(std::move(loaded).error(), options));
  }
  HR_RETURN_IF_ERROR(service->StartEngine(options, clock));
  return service;
}

ModelService::~ModelService() { thread_.reset(); }

Status ModelService::LoadScript(const ServeOptions& options) {
  HR_ASSIGN_OR_RETURN(const std::string text,
                      ReadWholeFile(options.model.substr(kScriptPrefix.size()), kScriptBytesMax));
  HR_ASSIGN_OR_RETURN(Script script, ParseScript(text));
  if (options.ctx > 0) script.context = options.ctx;
  std::this_thread::sleep_for(std::chrono::milliseconds(script.load_ms));
  HR_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::FromVocabulary(ScriptVocabulary(script)));
  trained_context_ = script.context;
  executor_ = std::make_unique<ScriptedExecutor>(std::move(script), ScriptedExecutor::RealSleeper());
  return SetTemplate(options, kChatMl);
}

Status ModelService::LoadModel(const ServeOptions& options) {
  HR_ASSIGN_OR_RETURN(const std::unique_ptr<ModelFile> file, ModelFile::Open(options.model));
  HR_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(*file));
  HR_RETURN_IF_ERROR(CheckFileFits(*file));
  auto defaults = ReadSamplingDefaults(*file);
  if (!defaults) return Fail(ErrorCode::kCorruptData, std::move(defaults).error().message);
  defaults_ = *defaults;
  HR_ASSIGN_OR_RETURN(tokenizer_, LoadTokenizer(*file));
  if (tokenizer_->vocab_size() > config.vocab_size) {
    return Fail(ErrorCode::kCorruptData, fmt::format("the tokenizer has {} tokens, but the model's embedding only {}",
                                                     tokenizer_->vocab_size(), config.vocab_size));
  }
  HR_RETURN_IF_ERROR(SetTemplate(options, ModelChatTemplate(*file)));
  trained_context_ = config.context;

  CpuExecutorOptions cpu;
  cpu.threads = options.threads > 0 ? options.threads : UsableCores();
  cpu.isa = options.isa;
  cpu.context = options.ctx > 0 ? options.ctx : config.context;
  if (cpu.context > config.context) {
    LOG_WARN("--ctx {} is more than the model was trained for; using {}", cpu.context, config.context);
    cpu.context = config.context;
  }
  cpu.kv_type = options.kv_int8 ? KvType::kInt8 : KvType::kInt16;
  cpu.kv_bytes = options.kv_memory_bytes;
  const uint64_t available = AvailableMemoryBytes();
  cpu.available_bytes = std::max<uint64_t>(1, available - std::min(available, CacheTierBytes(options)));
  if (options.kv_memory_bytes == 0) {
    cpu.kv_bytes = DefaultKvBytes(config, cpu.kv_type, cpu.context, options.max_sequences, cpu.available_bytes);
    cpu.kv_bytes_least = LeastKvBytes(config, cpu.kv_type, cpu.context);
  }
  cpu.pack_folder = options.pack_cache;
  const int prompt_tokens = options.prompt_batch_tokens > 0 ? options.prompt_batch_tokens : PromptBatchTokens(config);
  cpu.rows_max = std::max(options.max_batch_tokens, prompt_tokens);
  cpu.sequences_max = options.max_sequences;
  cpu.logit_rows_max = std::max(options.max_sequences, 32);
  HR_ASSIGN_OR_RETURN(executor_, CpuExecutor::Load(*file, config, cpu));
  if (const int64_t room = served_context(); room < std::min(kLittleRoom, config.context)) {
    LOG_WARN("a prompt and its answer may have {} tokens together; --ctx and --kv-memory give more", room);
  }
  return {};
}

Status ModelService::SetTemplate(const ServeOptions& options, std::string from_model) {
  std::string source = std::move(from_model);
  if (!options.chat_template_file.empty()) {
    HR_ASSIGN_OR_RETURN(source, ReadWholeFile(options.chat_template_file, kTemplateBytesMax));
  }
  if (source.empty()) return {};
  HR_ASSIGN_OR_RETURN(template_, ChatTemplate::Parse(std::move(source)));
  prompts_ = std::make_unique<PromptEncoder>(*tokenizer_, *template_);
  return {};
}

Status ModelService::StartEngine(const ServeOptions& options, const Clock& clock) {
  HR_ASSIGN_OR_RETURN(const DeploymentKey key, CacheKey(options));
  HR_ASSIGN_OR_RETURN(second_tier_, OpenSecondTier(options, key, description(), clock));
  preparer_ = std::make_unique<Preparer>(*tokenizer_, prompts_.get(), defaults_);
  if (!options.decision_log.empty()) {
    HR_ASSIGN_OR_RETURN(decisions_, CreateDecisionLog(options.decision_log));
  }
  engine_ =
      std::make_unique<Engine>(*executor_, *tokenizer_, clock,
                               EngineOptions{.waiting_max = options.max_waiting,
                                             .shared_tokens_max = options.max_batch_tokens,
                                             .prefix_cache = options.prefix_cache,
                                             .itl_target = static_cast<TimeNs>(options.itl_target_s * kNsPerSecond),
                                             .brown_out_wait = static_cast<TimeNs>(options.brown_out_s * kNsPerSecond),
                                             .drafts_max = options.speculation_tokens,
                                             .second_tier = &second_tier_,
                                             .decisions = decisions_.get(),
                                             .cache_key = BlockNameKey(key)});
  thread_ = std::make_unique<EngineThread>(*engine_, clock);
  return {};
}

std::string SamplingPlan(const SamplingDefaults& defaults) {
  std::string out;
  const auto add = [&out](const char* name, const auto& value) {
    if (value) out += fmt::format("{} {} {}", out.empty() ? "" : ",", name, *value);
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  return out.empty() ? out : "sampling defaults of the model:" + out;
}

std::string ModelService::PlanLines() const {
  const std::string sampling = SamplingPlan(defaults_);
  const std::string cache = CachePlan(second_tier_);
  return MemoryPlan() + (cache.empty() ? "" : "\n" + cache) + (sampling.empty() ? "" : "\n" + sampling);
}

std::string ModelService::MemoryPlan() const {
  const ExecutorDescription& d = description();
  const auto mib = [](uint64_t bytes) { return (bytes + (1 << 19)) >> 20; };
  return fmt::format(
      "weights {} MiB, KV {} MiB = {} tokens (context {}, up to {} sequences at once), scratch {} MiB, {} threads, "
      "kernels {}",
      mib(d.weight_bytes), mib(d.kv_bytes), kv_tokens(), d.context, d.sequences_max, mib(d.scratch_bytes), d.threads,
      d.kernels);
}

}  // namespace headrace
