#include "api/models.h"

#include <optional>

#include "json/json.h"

namespace headrace {
namespace {

// {"temperature":0.6,...}: what the model's file sets, or nothing.
void AppendSamplingDefaults(std::string& out, const SamplingDefaults& defaults) {
  Json set = Json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) set[name] = *value;
  };
  add("temperature", defaults.temperature);
  add("top_p", defaults.top_p);
  add("top_k", defaults.top_k);
  add("min_p", defaults.min_p);
  add("repetition_penalty", defaults.repetition_penalty);
  if (!set.empty()) out += R"(,"sampling_defaults":)" + DumpJson(set);
}

std::string_view StatusName(ModelStatus status) {
  switch (status) {
    case ModelStatus::kLoading:
      return "loading";
    case ModelStatus::kLoaded:
      return "loaded";
    case ModelStatus::kFailed:
      return "failed";
  }
  return "failed";
}

std::string_view HealthName(HealthState state) {
  switch (state) {
    case HealthState::kOk:
      return "ok";
    case HealthState::kLoading:
      return "loading model";
    case HealthState::kDraining:
      return "draining";
    case HealthState::kFailed:
      return "failed";
  }
  return "failed";
}

void AppendModel(std::string& out, const ModelCard& model) {
  out += R"({"id":)";
  AppendJsonString(out, model.id);
  out += R"(,"object":"model","created":)";
  AppendJsonInteger(out, model.created);
  out += R"(,"owned_by":)";
  AppendJsonString(out, model.owned_by);
  out += R"(,"root":)";
  AppendJsonString(out, model.root.empty() ? model.id : model.root);
  out += R"(,"max_model_len":)";
  if (model.max_model_len > 0) {
    AppendJsonInteger(out, model.max_model_len);
  } else {
    out += "null";
  }
  out += R"(,"status":)";
  AppendJsonString(out, StatusName(model.status));
  if (model.n_ctx_train > 0) {
    out += R"(,"meta":{"n_ctx_train":)";
    AppendJsonInteger(out, model.n_ctx_train);
    out += '}';
  }
  AppendSamplingDefaults(out, model.sampling_defaults);
  out += R"(,"architecture":{"input_modalities":["text"],"output_modalities":["text"]}})";
}

void AppendNames(std::string& out, const ModelCard& model) {
  const char* opening = "{\"";
  for (const char* key : {"id", "name", "model", "slug", "display_name"}) {
    out += opening;
    out += key;
    out += "\":";
    AppendJsonString(out, model.id);
    opening = ",\"";
  }
  out += '}';
}

}  // namespace

std::string ModelsListBody(std::span<const ModelCard> models) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    AppendModel(out, models[i]);
  }
  out += R"(],"models":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    AppendNames(out, models[i]);
  }
  out += "]}";
  return out;
}

std::string ModelBody(const ModelCard& model) {
  std::string out;
  AppendModel(out, model);
  return out;
}

std::string VersionBody(std::string_view version) {
  std::string out = R"({"version":)";
  AppendJsonString(out, version);
  out += '}';
  return out;
}

std::string HealthBody(HealthState state) {
  std::string out = R"({"status":)";
  AppendJsonString(out, HealthName(state));
  out += '}';
  return out;
}

int HealthHttpStatus(HealthState state) { return state == HealthState::kOk ? 200 : 503; }

}  // namespace headrace
