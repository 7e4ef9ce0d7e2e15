#include "model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/cpu.h"
#include "catalog/sha256.h"
#include "kernels/kernel_table.h"
#include "model/model_config.h"
#include "server/model_service.h"
#include "weights/model_file.h"

namespace headrace {
namespace {

int64_t Elements(const TensorInfo& tensor) {
  int64_t n = 1;
  for (const int64_t length : tensor.shape) n *= length;
  return n;
}

void AddTensors(const ModelFile& file, Json& facts) {
  int64_t parameters = 0;
  std::map<std::string, int64_t> types;
  for (const TensorInfo& tensor : file.tensors()) {
    parameters += Elements(tensor);
    ++types[std::string(Info(tensor.dtype).name)];
  }
  facts["parameters"] = parameters;
  facts["tensor_types"] = types;
}

// What the model's generation_config.json sets of the sampling; the server starts from these values.
Json SamplingDefaultsOf(const ModelFile& file) {
  Json defaults = Json::object();
  const auto json = ParseJson(file.Text(ModelFile::TextKind::kGenerationConfig), {});
  if (!json || !json->is_object()) return defaults;
  for (const char* key : {"temperature", "top_p", "top_k", "min_p", "repetition_penalty"}) {
    const auto it = json->find(key);
    if (it != json->end() && it->is_number()) defaults[key] = *it;
  }
  return defaults;
}

void AddTexts(const ModelFile& file, Json& facts) {
  const auto model = file.MetaString("tokenizer.ggml.model"), pre = file.MetaString("tokenizer.ggml.pre");
  if (model)
    facts["tokenizer"] = *model + (pre ? " / " + *pre : "");
  else if (!file.Text(ModelFile::TextKind::kTokenizer).empty())
    facts["tokenizer"] = "tokenizer.json";
  if (const auto* tokens = file.MetaStrings("tokenizer.ggml.tokens")) facts["vocabulary"] = tokens->size();
  const std::string chat_template = ModelChatTemplate(file);
  facts["chat_template"] = chat_template.empty() ? Json("none: completes text, has no chat")
                                                 : Json("sha256 " + Sha256Hex(chat_template).substr(0, 16));
  if (const Json defaults = SamplingDefaultsOf(file); !defaults.empty()) facts["sampling_defaults"] = defaults;
  if (auto licence = file.MetaString("general.license")) facts["licence"] = *licence;
}

// Bytes of the weights as the kernels hold them. Norms and other vectors stay as floats.
uint64_t PackedWeightBytes(const ModelFile& file) {
  uint64_t bytes = 0;
  for (const TensorInfo& t : file.tensors()) {
    const bool packs = t.shape.size() == 2 && Info(t.dtype).computable &&
                       t.columns() % std::max(32, Info(t.dtype).block_elements) == 0;
    bytes += packs ? static_cast<uint64_t>(PackedBytes(t.dtype, t.rows(), t.columns()))
                   : static_cast<uint64_t>(Elements(t)) * sizeof(float);
  }
  return bytes;
}

void AddMemoryPlan(const ModelFile& file, const ModelConfig& config, uint64_t available, Json& facts) {
  const uint64_t weights = PackedWeightBytes(file);
  const auto token = static_cast<uint64_t>(config.KvBytesPerToken(KvType::kInt16));
  Json plan;
  plan["weights_bytes"] = weights;
  plan["kv_bytes_per_token"] = token;
  plan["kv_bytes_full_context"] = token * static_cast<uint64_t>(config.context);
  plan["memory_available_bytes"] = available;
  plan["kv_tokens_that_fit"] = available > weights ? (available - weights) / std::max<uint64_t>(1, token) : 0;
  facts["memory_plan"] = plan;
}

// What loading would refuse, "" for nothing: the shape, a tensor type, the tokenizer.
std::string WhyNotServable(const ModelFile& file, const Result<ModelConfig>& config) {
  if (!config) return config.error().message;
  if (const Status computable = file.CheckComputable(); !computable) return computable.error().message;
  const auto tokenizer = LoadTokenizer(file);
  return tokenizer ? "" : tokenizer.error().message;
}

}  // namespace

Result<Json> ReadModelFacts(const std::string& path, uint64_t memory_available_bytes) {
  HR_ASSIGN_OR_RETURN(const auto file, ModelFile::Open(path));
  Json facts;
  facts["file"] = file->name();
  facts["format"] = file->format() == ModelFile::Format::kGguf ? "GGUF" : "safetensors";
  facts["bytes"] = file->total_bytes();
  if (auto name = file->MetaString("general.name")) facts["name"] = *name;
  const auto config = ReadModelConfig(*file);
  if (const auto architecture = file->MetaString("general.architecture"))
    facts["architecture"] = *architecture;
  else if (config)
    facts["architecture"] = config->architecture;
  AddTensors(*file, facts);
  if (config) {
    facts["context"] = config->context;
    facts["layers"] = config->layers;
    facts["width"] = config->width;
    facts["heads"] = fmt::format("{} ({} for K and V, {} wide)", config->heads, config->kv_heads, config->head_dim);
  } else if (const auto context = file->MetaInt(facts.value("architecture", "") + ".context_length")) {
    facts["context"] = *context;
  }
  AddTexts(*file, facts);
  if (config) AddMemoryPlan(*file, *config, memory_available_bytes, facts);
  if (const std::string why = WhyNotServable(*file, config); !why.empty()) facts["not_servable"] = why;
  return facts;
}

}  // namespace headrace
