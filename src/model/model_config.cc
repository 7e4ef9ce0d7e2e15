#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "model/families/family.h"
#include "model/weight_scales.h"

namespace headrace {
namespace {

Status CheckRange(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kCorruptData, fmt::format("{} is {}; it must be between {} and {}", what, value, low, high),
              what);
}

// What the families' own readers may count on.
Status CheckCounts(const ModelConfig& c) {
  HR_RETURN_IF_ERROR(CheckRange("block count", c.layers, 1, kLayersMax));
  HR_RETURN_IF_ERROR(CheckRange("embedding length", c.width, 32, kWidthMax));
  HR_RETURN_IF_ERROR(CheckRange("feed-forward length", c.ffn_width, 32, 4 * kWidthMax));
  HR_RETURN_IF_ERROR(CheckRange("head count", c.heads, 1, 1024));
  return CheckRange("KV head count", c.kv_heads, 1, c.heads);
}

// Short and long lists have one factor for each pair; GGUF files have none here, their tensors are checked as they
// load.
Status CheckLongRope(const RopeConfig& rope) {
  for (const auto* factors : {&rope.short_factors, &rope.long_factors}) {
    const bool positive = std::ranges::all_of(*factors, [](float f) { return f > 0 && std::isfinite(f); });
    if (!positive || (!factors->empty() && factors->size() != static_cast<size_t>(rope.dims / 2))) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("longrope needs {} positive factors in each list", rope.dims / 2), "rope_scaling");
    }
  }
  if (rope.short_factors.empty() == rope.long_factors.empty()) return {};
  return Fail(ErrorCode::kCorruptData, "longrope has one list of factors, it needs two", "rope_scaling");
}

Status CheckShape(const ModelConfig& c) {
  HR_RETURN_IF_ERROR(CheckRange("head dimension", c.head_dim, 16, kHeadDimMax));
  HR_RETURN_IF_ERROR(CheckRange("vocabulary size", c.vocab_size, 2, kVocabularyMax));
  HR_RETURN_IF_ERROR(CheckRange("context length", c.context, 2, kContextMax));
  HR_RETURN_IF_ERROR(CheckRange("rope dimension", c.rope.dims, 2, c.head_dim));
  if (c.heads % c.kv_heads != 0 || c.heads / c.kv_heads > kGroupHeadsMax) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} heads over {} KV heads; whole groups of at most {} are supported", c.heads, c.kv_heads,
                            kGroupHeadsMax));
  }
  if (c.head_dim % 16 != 0 || c.rope.dims % 2 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("head dimension {} (rope {}) is not supported: it must be a multiple of 16", c.head_dim,
                            c.rope.dims));
  }
  if (c.width % 32 != 0 || c.ffn_width % 32 != 0 || c.q_width() % 32 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("widths {}, {} and {} are not supported: they must be multiples of 32", c.width,
                            c.ffn_width, c.q_width()));
  }
  if (!(c.norm_eps > 0 && c.norm_eps < 1) || !(c.rope.base > 1) || !(c.rope.factor > 0)) {
    return Fail(ErrorCode::kCorruptData, "norm epsilon, rope base or rope factor is out of range");
  }
  for (const float scale : {c.attention_scale, c.embedding_scale, c.residual_scale, c.logit_scale}) {
    if (!(scale > 0) || !std::isfinite(scale))
      return Fail(ErrorCode::kCorruptData, fmt::format("a multiplier of {} is out of range", scale));
  }
  return CheckLongRope(c.rope);
}

// The family's own settings, and what follows from all of them.
template <typename Settings>
Status Finish(const Settings& settings, Status (*read)(const Settings&, ModelConfig&), ModelConfig& c) {
  HR_RETURN_IF_ERROR(CheckCounts(c));
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  if (read != nullptr) HR_RETURN_IF_ERROR(read(settings, c));
  if (c.window >= c.context || std::ranges::count(c.slides, 0) == std::ssize(c.slides)) {
    // Nothing is ever out of sight. The layers keep a rope of their own.
    c.window = 0;
  }
  return CheckShape(c);
}

// ---- GGUF ----------------------------------------------------------------------------------------------------------

// A file's attention factors multiply the paper's, where Hugging Face's replace it.
Status ReadGgufYarn(const GgufSettings& meta, RopeConfig& rope) {
  rope.beta_fast = meta.Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = meta.Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
  rope.attention_factor = YarnMagnitude(rope.factor) * meta.Float("rope.scaling.attn_factor", 1.0) *
                          meta.Float("rope.scaling.yarn_attn_factor", 1.0);
  for (const auto& [key, usual] :
       {std::pair{"rope.scaling.yarn_log_multiplier", 0.0}, {"rope.scaling.yarn_ext_factor", 1.0}}) {
    const double value = meta.Float(key, usual);
    if (value != usual)
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("a {} of {} is not supported for rope scaling 'yarn', only {}", key, value, usual),
                  "rope_scaling");
  }
  return {};
}

Status ReadGgufRope(const GgufSettings& meta, RopeConfig& rope) {
  rope.base = meta.Float("rope.freq_base", 10000.0);
  const double linear = meta.Float("rope.scale_linear", 1.0);  // older spelling
  const double factor = meta.Float("rope.scaling.factor", linear);
  std::string type = meta.String("rope.scaling.type", factor != 1.0 ? "linear" : "");  // ggml's default
  if (meta.file().Find("rope_factors_long.weight") != nullptr) type = "longrope";
  const double original = static_cast<double>(meta.Int("rope.scaling.original_context_length", 0));
  HR_RETURN_IF_ERROR(SetRopeScaling(rope, type, factor, original));
  if (rope.scaling == RopeConfig::Scaling::kYarn) return ReadGgufYarn(meta, rope);
  rope.attention_factor = meta.Float("rope.scaling.attn_factor", 0.0);
  if (rope.scaling == RopeConfig::Scaling::kLongRope)
    rope.factor = static_cast<double>(meta.Int("context_length", 0)) / original;
  return {};
}

Result<ModelConfig> FromGguf(const ModelFile& file) {
  ModelConfig c;
  c.architecture = file.MetaString("general.architecture").value_or("");
  HR_ASSIGN_OR_RETURN(c.family, FamilyOfArchitecture(c.architecture));
  const GgufSettings meta(file, c.architecture);
  const auto integer = [&](const char* key, int64_t fallback) { return static_cast<int>(meta.Int(key, fallback)); };
  c.name = file.MetaString("general.name").value_or(file.name());
  c.layers = integer("block_count", 0);
  c.width = integer("embedding_length", 0);
  c.ffn_width = integer("feed_forward_length", 0);
  c.heads = integer("attention.head_count", 0);
  c.kv_heads = integer("attention.head_count_kv", c.heads);
  c.head_dim = integer("attention.key_length", c.heads > 0 ? c.width / c.heads : 0);
  c.context = meta.Int("context_length", 2048);
  if (meta.Int("expert_count", 0) > 0) {
    return Fail(ErrorCode::kUnsupported, "mixture-of-experts models are not supported yet",
                c.architecture + ".expert_count");
  }
  if (meta.Int("attention.value_length", c.head_dim) != c.head_dim) {
    return Fail(ErrorCode::kUnsupported, "values and keys of different lengths are not supported",
                c.architecture + ".attention.value_length");
  }
  const std::vector<std::string>* tokens = file.MetaStrings("tokenizer.ggml.tokens");
  c.vocab_size = integer("vocab_size", tokens != nullptr ? static_cast<int64_t>(tokens->size()) : 0);
  c.norm_eps = static_cast<float>(meta.Float("attention.layer_norm_rms_epsilon", 1e-5));
  c.rope.pairing = c.family->gguf_pairing;
  c.rope.dims = integer("rope.dimension_count", c.head_dim);
  HR_RETURN_IF_ERROR(ReadGgufRope(meta, c.rope));
  HR_RETURN_IF_ERROR(Finish(meta, c.family->read_gguf, c));
  return c;
}

// ---- Hugging Face config.json --------------------------------------------------------------------------------------

// A language model, and nothing beside it that would have to be left out.
Status RefuseOtherTasks(const HfSettings& json) {
  for (const char* tower : {"vision_config", "audio_config"}) {
    if (!json.Has(tower)) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("models with a {} are not supported; a text-only export of this model is", tower), tower);
  }
  const HfSettings::Json* classes = json.Array("architectures");
  if (classes == nullptr || classes->empty() || !classes->front().is_string()) return {};
  const std::string name = classes->front().get<std::string>();
  if (name.ends_with("ForCausalLM")) return {};
  return Fail(ErrorCode::kUnsupported, fmt::format("a {} is not supported, only ...ForCausalLM", name),
              "architectures");
}

Result<ModelConfig> FromHuggingFace(const ModelFile& file) {
  const std::string& text = file.Text(ModelFile::TextKind::kConfig);
  HfSettings::Json config = HfSettings::Json::parse(text, nullptr, false);
  if (!config.is_object())
    return Fail(ErrorCode::kCorruptData,
                "config.json is missing or not a JSON object; give the model's folder, not the weights file alone",
                "config.json");
  const HfSettings json(file, config);
  HR_RETURN_IF_ERROR(RefuseOtherTasks(json));
  ModelConfig c;
  HR_RETURN_IF_ERROR(ReadQuantization(json, c));
  if (const HfSettings::Json* nested = json.Object("text_config")) {
    const HfSettings::Json inner = *nested;
    for (const auto& [key, value] : inner.items()) config[key] = value;
  }
  HR_ASSIGN_OR_RETURN(c.family, FamilyOfModelType(json.String("model_type", "")));
  c.architecture = c.family->name;
  c.name = json.String("_name_or_path", file.name());
  const std::string activation =
      json.String("hidden_act", json.String("hidden_activation", std::string(c.family->activation)));
  if (activation != c.family->activation) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("activation '{}' is not supported; supported is {}", activation, c.family->activation),
                "hidden_act");
  }
  c.layers = json.Int("num_hidden_layers", 0);
  c.width = json.Int("hidden_size", 0);
  c.ffn_width = json.Int("intermediate_size", 0);
  c.heads = json.Int("num_attention_heads", 0);
  c.kv_heads = json.Int("num_key_value_heads", c.heads);
  c.head_dim = json.Int("head_dim", c.heads > 0 ? c.width / c.heads : 0);
  c.context = json.Int("max_position_embeddings", 2048);
  c.vocab_size = json.Int("vocab_size", 0);
  c.norm_eps = static_cast<float>(json.Float("rms_norm_eps", 1e-6));
  c.tied_head_declared = json.Bool("tie_word_embeddings", true);
  c.rope.pairing = RopeConfig::Pairing::kHalves;
  c.rope.base = json.Float("rope_theta", 10000.0);
  c.rope.dims = c.head_dim;
  c.rope.original_context = json.Float("original_max_position_embeddings", 0);
  // "rope_scaling" in the older spelling, "rope_parameters" (with the base inside) in the newer one.
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const HfSettings::Json* rope = json.Object(key);
    if (rope == nullptr && json.Has(key))
      return Fail(ErrorCode::kCorruptData, fmt::format("{} is no object", key), "rope_scaling");
    if (rope != nullptr) HR_RETURN_IF_ERROR(ReadHfRope(HfSettings(file, *rope), c.context, c.rope));
  }
  HR_RETURN_IF_ERROR(Finish(json, c.family->read_hf, c));
  return c;
}

}  // namespace

Result<ModelConfig> ReadModelConfig(const ModelFile& file) {
  return file.format() == ModelFile::Format::kGguf ? FromGguf(file) : FromHuggingFace(file);
}

}  // namespace headrace
