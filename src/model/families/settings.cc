#include "model/families/settings.h"

#include <fmt/format.h>

#include <algorithm>

namespace headrace {

int64_t GgufSettings::Int(const char* key, int64_t fallback) const {
  return std::clamp<int64_t>(file_.MetaInt(prefix_ + key).value_or(fallback), -1, INT32_MAX);
}

double GgufSettings::Float(const char* key, double fallback) const {
  return file_.MetaFloat(prefix_ + key).value_or(fallback);
}

std::string GgufSettings::String(const char* key, std::string fallback) const {
  return file_.MetaString(prefix_ + key).value_or(std::move(fallback));
}

double HfSettings::Float(const char* key, double fallback) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_number() ? it->get<double>() : fallback;
}

int HfSettings::Int(const char* key, int64_t fallback) const {
  const double value = Float(key, static_cast<double>(fallback));
  return value > -1 && value < 1e9 ? static_cast<int>(value) : -1;
}

std::string HfSettings::String(const char* key, std::string fallback) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_string() ? it->get<std::string>() : fallback;
}

bool HfSettings::Bool(const char* key, bool fallback) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_boolean() ? it->get<bool>() : fallback;
}

bool HfSettings::Has(const char* key) const {
  const auto it = json_.find(key);
  return it != json_.end() && !it->is_null();
}

const HfSettings::Json* HfSettings::Object(const char* key) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_object() ? &*it : nullptr;
}

const HfSettings::Json* HfSettings::Array(const char* key) const {
  const auto it = json_.find(key);
  return it != json_.end() && it->is_array() ? &*it : nullptr;
}

namespace {

std::vector<float> FloatsOf(const HfSettings& object, const char* key) {
  std::vector<float> out;
  const HfSettings::Json* array = object.Array(key);
  if (array == nullptr) return out;
  for (const auto& value : *array) out.push_back(value.is_number() ? value.get<float>() : 0);
  return out;
}

}  // namespace

namespace {

// "rope_type", or "type" in the older spelling. What stretches positions must say how.
Result<std::string> RopeTypeOf(const HfSettings& object) {
  for (const char* key : {"rope_type", "type"}) {
    if (!object.Has(key)) continue;
    const std::string type = object.String(key, "");
    if (!type.empty()) return type;
    return Fail(ErrorCode::kCorruptData, fmt::format("{} of rope_scaling is no name", key), "rope_scaling");
  }
  if (!object.Has("factor")) return "none";
  return Fail(ErrorCode::kCorruptData, "rope_scaling has a factor, but no rope_type that says what it means",
              "rope_scaling");
}

}  // namespace

Status ReadHfRope(const HfSettings& object, int64_t context, RopeConfig& rope) {
  rope.base = object.Float("rope_theta", rope.base);
  rope.low_freq_factor = object.Float("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = object.Float("high_freq_factor", rope.high_freq_factor);
  rope.beta_fast = object.Float("beta_fast", rope.beta_fast);
  rope.beta_slow = object.Float("beta_slow", rope.beta_slow);
  rope.attention_factor = object.Float("attention_factor", 0.0);
  const double original =
      object.Float("original_max_position_embeddings",
                   rope.original_context > 0 ? rope.original_context : static_cast<double>(context));
  HR_ASSIGN_OR_RETURN(const std::string type, RopeTypeOf(object));
  HR_RETURN_IF_ERROR(SetRopeScaling(rope, type, object.Float("factor", 1.0), original));
  if (rope.scaling == RopeConfig::Scaling::kYarn) {
    rope.whole_dimensions = object.Bool("truncate", true);
    const double tenths = object.Float("mscale", 0.0), tenths_of_all = object.Float("mscale_all_dim", 0.0);
    if (rope.attention_factor <= 0 && tenths > 0 && tenths_of_all > 0)
      rope.attention_factor = YarnMagnitude(rope.factor, tenths) / YarnMagnitude(rope.factor, tenths_of_all);
  }
  if (rope.scaling != RopeConfig::Scaling::kLongRope) return {};
  rope.factor = static_cast<double>(context) / original;
  rope.short_factors = FloatsOf(object, "short_factor");
  rope.long_factors = FloatsOf(object, "long_factor");
  if (!rope.short_factors.empty()) return {};  // their lengths are checked with the shape
  return Fail(ErrorCode::kCorruptData, "rope scaling 'longrope' needs short_factor and long_factor", "rope_scaling");
}

Status ReadHfWindow(const HfSettings& json, bool (*slides)(const HfSettings& json, int layer), ModelConfig& c) {
  if (!json.Has("sliding_window")) return {};
  c.window = json.Int("sliding_window", 0);
  if (c.window < 1) return Fail(ErrorCode::kCorruptData, "sliding_window is no positive number", "sliding_window");
  const HfSettings::Json* types = json.Array("layer_types");
  for (int l = 0; l < c.layers && types == nullptr; ++l) c.slides.push_back(slides(json, l));
  if (types == nullptr) return {};
  for (const auto& type : *types) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    if (name != "full_attention" && name != "sliding_attention") {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("layer type '{}' is not supported; supported are full_attention and sliding_attention", name),
          "layer_types");
    }
    c.slides.push_back(name == "sliding_attention");
  }
  if (c.slides.size() == static_cast<size_t>(c.layers)) return {};
  return Fail(ErrorCode::kCorruptData,
              fmt::format("layer_types has {} entries for {} layers", c.slides.size(), c.layers), "layer_types");
}

Status RefuseSetting(const char* key, double value, const char* what) {
  if (value == 0) return {};
  return Fail(ErrorCode::kUnsupported, fmt::format("{} is {}: {} are not supported", key, value, what), key);
}

}  // namespace headrace
