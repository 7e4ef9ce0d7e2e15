// Typed access to what a model's files say about its shape: GGUF metadata under the architecture's prefix, or a Hugging
// Face config.json. A value that is absent, null or of another kind gives the fallback; ranges are checked afterwards.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/model_config.h"
#include "weights/model_file.h"

namespace headrace {

class GgufSettings {
 public:
  // Keys are given without the prefix: "block_count" is "gemma3.block_count".
  GgufSettings(const ModelFile& file, const std::string& architecture) : file_(file), prefix_(architecture + ".") {}

  const ModelFile& file() const { return file_; }
  // Clamped to [-1, 2^31 - 1].
  int64_t Int(const char* key, int64_t fallback) const;
  double Float(const char* key, double fallback) const;
  std::string String(const char* key, std::string fallback) const;
  bool Has(const char* key) const { return file_.Meta(prefix_ + key) != nullptr; }

 private:
  const ModelFile& file_;
  const std::string prefix_;
};

class HfSettings {
 public:
  using Json = nlohmann::ordered_json;

  // `json` is an object and outlives this.
  HfSettings(const ModelFile& file, const Json& json) : file_(file), json_(json) {}

  const ModelFile& file() const { return file_; }
  double Float(const char* key, double fallback) const;
  // -1 for what no model has.
  int Int(const char* key, int64_t fallback) const;
  std::string String(const char* key, std::string fallback) const;
  bool Bool(const char* key, bool fallback) const;
  // Present and not null.
  bool Has(const char* key) const;
  // Null when absent or no object.
  const Json* Object(const char* key) const;
  const Json* Array(const char* key) const;

 private:
  const ModelFile& file_;
  const Json& json_;
};

// Reads one "rope_scaling" or "rope_parameters" object into `rope`; `context` is the trained one.
Status ReadHfRope(const HfSettings& object, int64_t context, RopeConfig& rope);

// The layers that see a window only: `layer_types` where config.json has it, else slides(layer) of each layer.
// Sets c.window and c.slides; a `sliding_window` of null means none.
Status ReadHfWindow(const HfSettings& json, bool (*slides)(const HfSettings& json, int layer), ModelConfig& c);

// Fails when the setting is there and is not 0: what the step does not do must not be left out silently.
Status RefuseSetting(const char* key, double value, const char* what);

}  // namespace headrace
