#include "model/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/exact_math.h"
#include "kernels/attention.h"

namespace headrace {
namespace {

constexpr double kTwoPi = 6.283185307179586;

Status CheckRange(const char* what, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Fail(ErrorCode::kCorruptData, fmt::format("{} is {}; it must be between {} and {}", what, value, low, high),
              what);
}

Status CheckShape(const ModelConfig& c) {
  HR_RETURN_IF_ERROR(CheckRange("block count", c.layers, 1, kLayersMax));
  HR_RETURN_IF_ERROR(CheckRange("embedding length", c.width, 32, kWidthMax));
  HR_RETURN_IF_ERROR(CheckRange("feed-forward length", c.ffn_width, 32, 4 * kWidthMax));
  HR_RETURN_IF_ERROR(CheckRange("head count", c.heads, 1, 1024));
  HR_RETURN_IF_ERROR(CheckRange("KV head count", c.kv_heads, 1, c.heads));
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
  if (c.width % 32 != 0 || c.ffn_width % 32 != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("widths {} and {} are not supported: they must be multiples of 32", c.width, c.ffn_width));
  }
  if (!(c.norm_eps > 0 && c.norm_eps < 1) || !(c.rope.base > 1) || !(c.rope.factor > 0)) {
    return Fail(ErrorCode::kCorruptData, "norm epsilon, rope base or rope factor is out of range");
  }
  return {};
}

Status SetScaling(RopeConfig& rope, std::string_view type, double factor, double original_context) {
  rope.factor = factor;
  rope.original_context = original_context;
  if (type.empty() || type == "none" || type == "default") {
    rope.scaling = RopeConfig::Scaling::kNone;
  } else if (type == "linear") {
    rope.scaling = RopeConfig::Scaling::kLinear;
  } else if (type == "llama3") {
    rope.scaling = RopeConfig::Scaling::kLlama3;
  } else if (type == "yarn") {
    rope.scaling = RopeConfig::Scaling::kYarn;
  } else {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("rope scaling '{}' is not supported; supported are none, linear, llama3 and yarn", type),
                "rope_scaling");
  }
  const bool needs_context = rope.scaling == RopeConfig::Scaling::kLlama3 || rope.scaling == RopeConfig::Scaling::kYarn;
  if (needs_context && original_context < 1) {
    return Fail(ErrorCode::kCorruptData, fmt::format("rope scaling '{}' needs its original context length", type),
                "rope_scaling");
  }
  return {};
}

// ---- GGUF ----------------------------------------------------------------------------------------------------------

Result<ModelConfig> FromGguf(const ModelFile& file) {
  ModelConfig c;
  c.architecture = file.MetaString("general.architecture").value_or("");
  if (c.architecture != "llama") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("architecture '{}' is not supported; supported is llama (with SmolLM, Llama 2 and 3 and "
                            "Mistral files of that "
                            "architecture)",
                            c.architecture),
                "general.architecture");
  }
  const auto integer = [&](const char* key, int64_t fallback) {
    return std::clamp<int64_t>(file.MetaInt("llama." + std::string(key)).value_or(fallback), -1, INT32_MAX);
  };
  c.name = file.MetaString("general.name").value_or(file.name());
  c.layers = static_cast<int>(integer("block_count", 0));
  c.width = static_cast<int>(integer("embedding_length", 0));
  c.ffn_width = static_cast<int>(integer("feed_forward_length", 0));
  c.heads = static_cast<int>(integer("attention.head_count", 0));
  c.kv_heads = static_cast<int>(integer("attention.head_count_kv", c.heads));
  c.head_dim = static_cast<int>(integer("attention.key_length", c.heads > 0 ? c.width / c.heads : 0));
  c.context = integer("context_length", 2048);
  if (integer("expert_count", 0) > 0)
    return Fail(ErrorCode::kUnsupported, "mixture-of-experts models are not supported yet", "llama.expert_count");
  const std::vector<std::string>* tokens = file.MetaStrings("tokenizer.ggml.tokens");
  c.vocab_size =
      static_cast<int32_t>(integer("vocab_size", tokens != nullptr ? static_cast<int64_t>(tokens->size()) : 0));
  c.norm_eps = static_cast<float>(file.MetaFloat("llama.attention.layer_norm_rms_epsilon").value_or(1e-5));
  c.rope.pairing = RopeConfig::Pairing::kInterleaved;
  c.rope.base = file.MetaFloat("llama.rope.freq_base").value_or(10000.0);
  c.rope.dims = static_cast<int>(integer("rope.dimension_count", c.head_dim));
  const double linear = file.MetaFloat("llama.rope.scale_linear").value_or(1.0);  // older spelling
  HR_RETURN_IF_ERROR(SetScaling(c.rope,
                                file.MetaString("llama.rope.scaling.type").value_or(linear != 1.0 ? "linear" : ""),
                                file.MetaFloat("llama.rope.scaling.factor").value_or(linear),
                                static_cast<double>(integer("rope.scaling.original_context_length", 0))));
  c.rope.attention_factor = file.MetaFloat("llama.rope.scaling.attn_factor").value_or(0.0);
  HR_RETURN_IF_ERROR(CheckShape(c));
  return c;
}

// ---- Hugging Face config.json --------------------------------------------------------------------------------------

using Json = nlohmann::ordered_json;

// Numbers that are absent, null or of another type give the fallback; the ranges are checked afterwards.
double NumberOr(const Json& object, const char* key, double fallback) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : fallback;
}
int IntOr(const Json& object, const char* key, int64_t fallback) {
  const double value = NumberOr(object, key, static_cast<double>(fallback));
  return value > -1 && value < 1e9 ? static_cast<int>(value) : -1;
}
std::string StringOr(const Json& object, const char* key, std::string fallback) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : fallback;
}

Status ReadHfRope(const Json& config, ModelConfig& c) {
  // "rope_scaling" in the older spelling, "rope_parameters" (with the base inside) in the newer one.
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object()) continue;
    const Json& rope = *it;
    c.rope.base = NumberOr(rope, "rope_theta", c.rope.base);
    c.rope.low_freq_factor = NumberOr(rope, "low_freq_factor", c.rope.low_freq_factor);
    c.rope.high_freq_factor = NumberOr(rope, "high_freq_factor", c.rope.high_freq_factor);
    c.rope.beta_fast = NumberOr(rope, "beta_fast", c.rope.beta_fast);
    c.rope.beta_slow = NumberOr(rope, "beta_slow", c.rope.beta_slow);
    c.rope.attention_factor = NumberOr(rope, "attention_factor", 0.0);
    const double original = NumberOr(rope, "original_max_position_embeddings", static_cast<double>(c.context));
    HR_RETURN_IF_ERROR(SetScaling(c.rope, StringOr(rope, "rope_type", StringOr(rope, "type", "")),
                                  NumberOr(rope, "factor", 1.0), original));
  }
  return {};
}

Result<ModelConfig> FromHuggingFace(const ModelFile& file) {
  const std::string& text = file.Text(ModelFile::TextKind::kConfig);
  Json config = Json::parse(text, nullptr, false);
  if (!config.is_object())
    return Fail(ErrorCode::kCorruptData,
                "config.json is missing or not a JSON object; give the model's folder, not the weights file alone",
                "config.json");
  if (const auto nested = config.find("text_config"); nested != config.end() && nested->is_object()) {
    const Json inner = *nested;
    for (const auto& [key, value] : inner.items()) config[key] = value;
  }
  ModelConfig c;
  const std::string type = StringOr(config, "model_type", "");
  if (type != "llama") {
    return Fail(ErrorCode::kUnsupported, fmt::format("model_type '{}' is not supported; supported is llama", type),
                "model_type");
  }
  c.architecture = "llama";
  c.name = StringOr(config, "_name_or_path", file.name());
  if (StringOr(config, "hidden_act", "silu") != "silu") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("activation '{}' is not supported; supported is silu", StringOr(config, "hidden_act", "")),
                "hidden_act");
  }
  c.layers = IntOr(config, "num_hidden_layers", 0);
  c.width = IntOr(config, "hidden_size", 0);
  c.ffn_width = IntOr(config, "intermediate_size", 0);
  c.heads = IntOr(config, "num_attention_heads", 0);
  c.kv_heads = IntOr(config, "num_key_value_heads", c.heads);
  c.head_dim = IntOr(config, "head_dim", c.heads > 0 ? c.width / c.heads : 0);
  c.context = IntOr(config, "max_position_embeddings", 2048);
  c.vocab_size = IntOr(config, "vocab_size", 0);
  c.norm_eps = static_cast<float>(NumberOr(config, "rms_norm_eps", 1e-6));
  const auto tied = config.find("tie_word_embeddings");
  c.tied_head_declared = tied == config.end() || !tied->is_boolean() || tied->get<bool>();
  c.rope.pairing = RopeConfig::Pairing::kHalves;
  c.rope.base = NumberOr(config, "rope_theta", 10000.0);
  c.rope.dims = c.head_dim;
  HR_RETURN_IF_ERROR(ReadHfRope(config, c));
  HR_RETURN_IF_ERROR(CheckShape(c));
  return c;
}

// ---- frequencies ---------------------------------------------------------------------------------------------------

// Wavelengths beyond the original context are stretched, short ones kept, a ramp between (Llama 3.1).
double Llama3Frequency(const RopeConfig& rope, double frequency) {
  const double wavelength = kTwoPi / frequency;
  const double longest_kept = rope.original_context / rope.high_freq_factor,
               shortest_stretched = rope.original_context / rope.low_freq_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_stretched) return frequency / rope.factor;
  const double smooth =
      (rope.original_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// Peng et al., YaRN, 2023: interpolate slow pairs, keep fast ones, ramp between the two correction dimensions.
double YarnFrequency(const RopeConfig& rope, double frequency, int pair) {
  const auto correction = [&](double rotations) {
    return rope.dims * ExactLog(rope.original_context / (rotations * kTwoPi)) / (2 * ExactLog(rope.base));
  };
  const double low = std::max(std::floor(correction(rope.beta_fast)), 0.0);
  const double high = std::min(std::ceil(correction(rope.beta_slow)), static_cast<double>(rope.dims - 1));
  const double ramp = std::clamp((pair - low) / std::max(high - low, 0.001), 0.0, 1.0);
  return frequency / rope.factor * ramp + frequency * (1 - ramp);
}

}  // namespace

Result<ModelConfig> ReadModelConfig(const ModelFile& file) {
  return file.format() == ModelFile::Format::kGguf ? FromGguf(file) : FromHuggingFace(file);
}

std::vector<double> RopeFrequencies(const RopeConfig& rope, const std::vector<float>& factors, double* magnitude) {
  *magnitude = 1.0;
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    *magnitude = rope.attention_factor > 0 ? rope.attention_factor : 0.1 * ExactLog(rope.factor) + 1.0;
  }
  std::vector<double> out(static_cast<size_t>(rope.dims / 2));
  for (int i = 0; i < rope.dims / 2; ++i) {
    double frequency = ExactPow(rope.base, -2.0 * i / rope.dims);
    switch (rope.scaling) {
      case RopeConfig::Scaling::kNone:
        break;
      case RopeConfig::Scaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeConfig::Scaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
      case RopeConfig::Scaling::kYarn:
        frequency = YarnFrequency(rope, frequency, i);
        break;
    }
    if (!factors.empty()) frequency /= static_cast<double>(factors[static_cast<size_t>(i)]);
    out[static_cast<size_t>(i)] = frequency;
  }
  return out;
}

}  // namespace headrace
