// Answers about models and the server itself: /v1/models (M1-M4), /version, /health. Free functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/request.h"

namespace headrace {

enum class ModelStatus : uint8_t { kLoading, kLoaded, kFailed };

struct ModelCard {
  std::string id;  // an alias is a card of its own
  int64_t created = 0;
  std::string owned_by = "headrace";
  std::string root;           // the model an alias or adapter stands for; "": itself
  int64_t max_model_len = 0;  // tokens served; 0: not known yet, written as null
  int64_t n_ctx_train = 0;    // tokens the model was trained for; 0: not written
  ModelStatus status = ModelStatus::kLoaded;
  SamplingDefaults sampling_defaults;  // of the model's generation_config.json; written where it sets any
};

// Beside `data` a `models` array with the names that Codex, Ollama's and llama.cpp's clients read.
std::string ModelsListBody(std::span<const ModelCard> models);
std::string ModelBody(const ModelCard& model);

// {"version":"..."}
std::string VersionBody(std::string_view version);

enum class HealthState : uint8_t { kOk, kLoading, kDraining, kFailed };
// {"status":"ok" | "loading model" | "draining" | "failed"}; served with HealthHttpStatus(), 200 or 503.
std::string HealthBody(HealthState state);
int HealthHttpStatus(HealthState state);

}  // namespace headrace
