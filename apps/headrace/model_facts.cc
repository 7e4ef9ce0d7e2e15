#include "model_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/cpu.h"
#include "base/log.h"
#include "catalog/progress.h"
#include "catalog/sha256.h"
#include "kernels/kernel_table.h"
#include "model/model_config.h"
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

std::string TemplateOf(const ModelFile& file) {
  if (auto text = file.MetaString("tokenizer.chat_template")) return *text;
  return file.Text(ModelFile::TextKind::kChatTemplate);
}

void AddTexts(const ModelFile& file, Json& facts) {
  const auto model = file.MetaString("tokenizer.ggml.model"), pre = file.MetaString("tokenizer.ggml.pre");
  if (model)
    facts["tokenizer"] = *model + (pre ? " / " + *pre : "");
  else if (!file.Text(ModelFile::TextKind::kTokenizer).empty())
    facts["tokenizer"] = "tokenizer.json";
  if (const auto* tokens = file.MetaStrings("tokenizer.ggml.tokens")) facts["vocabulary"] = tokens->size();
  const std::string chat_template = TemplateOf(file);
  facts["chat_template"] = chat_template.empty() ? Json("none: completes text, has no chat")
                                                 : Json("sha256 " + Sha256Hex(chat_template).substr(0, 16));
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
  const auto token = static_cast<uint64_t>(config.KvBytesPerToken());
  Json plan;
  plan["weights_bytes"] = weights;
  plan["kv_bytes_per_token"] = token;
  plan["kv_bytes_full_context"] = token * static_cast<uint64_t>(config.context);
  plan["memory_available_bytes"] = available;
  plan["kv_tokens_that_fit"] = available > weights ? (available - weights) / std::max<uint64_t>(1, token) : 0;
  facts["memory_plan"] = plan;
}

std::string PlanAsText(const Json& plan) {
  const auto bytes = [&](const char* key) { return FormatBytes(plan.at(key).get<uint64_t>()); };
  return fmt::format("weights {}; KV {} a token, {} for a full context; {} free now, room for {} tokens",
                     bytes("weights_bytes"), bytes("kv_bytes_per_token"), bytes("kv_bytes_full_context"),
                     bytes("memory_available_bytes"), plan.at("kv_tokens_that_fit").get<uint64_t>());
}

std::string ValueAsText(const std::string& key, const Json& value) {
  if (key == "memory_plan") return PlanAsText(value);
  if (key == "bytes") return FormatBytes(value.get<uint64_t>());
  if (key == "parameters") return fmt::format("{:.1f} M", static_cast<double>(value.get<int64_t>()) / 1e6);
  if (value.is_string()) return EscapeForLog(value.get_ref<const std::string&>(), 300);
  if (!value.is_object()) return DumpJson(value);
  std::string out;
  for (const auto& [name, count] : value.items()) out += (out.empty() ? "" : ", ") + DumpJson(count) + " " + name;
  return out;
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
  const Status computable = file->CheckComputable();
  if (!config)
    facts["not_servable"] = config.error().message;
  else if (!computable)
    facts["not_servable"] = computable.error().message;
  return facts;
}

std::string FactsAsText(const Json& facts) {
  std::string out;
  for (const auto& [key, value] : facts.items()) {
    std::string label = key;
    std::ranges::replace(label, '_', ' ');
    out += fmt::format("{:<15} {}\n", label, ValueAsText(key, value));
  }
  return out;
}

}  // namespace headrace
