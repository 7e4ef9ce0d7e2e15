#include "api/request_fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <charconv>

#include "json/json_path.h"

namespace headrace {
namespace {

// A thousandth still survives the conversion to float with room for the division by it.
constexpr double kRepetitionPenaltyMin = 0.001;

Status ReadStreaming(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(Store(fields.Bool("stream"), &request->stream));
  HR_ASSIGN_OR_RETURN(const Json* options, fields.Object("stream_options"));
  if (options == nullptr) return {};
  if (!request->stream) {
    return Fail(ErrorCode::kInvalidArgument, "'stream_options' is only allowed together with \"stream\": true.",
                "stream_options");
  }
  HR_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*options, "stream_options", limits.fields_max));
  HR_RETURN_IF_ERROR(Store(inner.Bool("include_usage"), &request->include_usage));
  bool obfuscation = false;  // padding against traffic analysis of other people's networks: accepted, none is added
  HR_RETURN_IF_ERROR(Store(inner.Bool("include_obfuscation"), &obfuscation));
  bool continuous = false;
  HR_RETURN_IF_ERROR(Store(inner.Bool("continuous_usage_stats"), &continuous));
  if (continuous) {
    return Fail(
        ErrorCode::kUnsupported,
        "'stream_options.continuous_usage_stats' is not supported; use 'include_usage' for one usage chunk at the end.",
        "stream_options.continuous_usage_stats");
  }
  NoteUnknown(inner.Unread(limits.unknown_fields_max), "stream_options.", limits, &request->unknown_fields);
  return {};
}

Status CheckMetadata(JsonFields& fields, const ApiLimits& limits) {
  HR_ASSIGN_OR_RETURN(const Json* metadata, fields.Object("metadata"));
  if (metadata == nullptr) return {};
  if (metadata->size() > limits.metadata_pairs_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'metadata' has {} pairs; the limit is {}.", metadata->size(), limits.metadata_pairs_max),
                "metadata");
  }
  for (const auto& item : metadata->items()) {
    if (item.key().size() > limits.metadata_key_bytes_max) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("A key of 'metadata' has {} bytes; the limit is {}.", item.key().size(),
                              limits.metadata_key_bytes_max),
                  "metadata");
    }
    std::string path = JoinJsonPath("metadata", item.key());
    if (!item.value().is_string()) return Fail(JsonTypeError(item.value(), std::move(path), "a string"));
    if (const size_t bytes = item.value().get_ref<const std::string&>().size();
        bytes > limits.metadata_value_bytes_max) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' has {} bytes; the limit is {}.", path, bytes, limits.metadata_value_bytes_max),
                  path);
    }
  }
  return {};
}

// "42" to 42; no sign, no leading zero, so that one id has one spelling.
Result<int32_t> BiasTokenId(const std::string& key, const std::string& path) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || id < 0 || (key.size() > 1 && key[0] == '0')) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}': a key of 'logit_bias' must be a token id written as a decimal number.", path),
                "logit_bias");
  }
  return id;
}

Status ReadLogitBias(JsonFields& fields, const ApiLimits& limits, SamplingFields* sampling) {
  HR_ASSIGN_OR_RETURN(const Json* bias, fields.Object("logit_bias"));
  if (bias == nullptr) return {};
  if (bias->size() > limits.logit_bias_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'logit_bias' has {} entries; the limit is {}.", bias->size(), limits.logit_bias_max),
                "logit_bias");
  }
  sampling->logit_bias.reserve(bias->size());
  for (const auto& item : bias->items()) {
    std::string path = JoinJsonPath("logit_bias", item.key());
    HR_ASSIGN_OR_RETURN(const int32_t id, BiasTokenId(item.key(), path));
    if (!item.value().is_number()) return Fail(JsonTypeError(item.value(), std::move(path), "a number"));
    const double value = item.value().get<double>();
    if (!(value >= -100 && value <= 100)) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' must be a number from -100 to 100, but it is {}.", path, value), path);
    }
    sampling->logit_bias.emplace_back(id, static_cast<float>(value));
  }
  return {};
}

Result<std::string> StopString(const Json& value, std::string path, const ApiLimits& limits) {
  if (!value.is_string()) return Fail(JsonTypeError(value, std::move(path), "a string"));
  const std::string& text = value.get_ref<const std::string&>();
  if (text.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is empty: an empty stop string would end every answer at once. Leave it out.", path),
                path);
  }
  if (text.size() > limits.stop_bytes_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} bytes; the limit is {}.", path, text.size(), limits.stop_bytes_max), path);
  }
  return text;
}

Status ReadStops(JsonFields& fields, const ApiLimits& limits, std::vector<std::string>* stops) {
  const Json* stop = fields.Find("stop");
  if (stop == nullptr) return {};
  if (!stop->is_string() && !stop->is_array())
    return Fail(JsonTypeError(*stop, "stop", "a string or an array of strings"));
  if (stop->is_string()) {
    HR_ASSIGN_OR_RETURN(std::string text, StopString(*stop, "stop", limits));
    stops->push_back(std::move(text));
    return {};
  }
  HR_RETURN_IF_ERROR(fields.Array("stop", limits.stops_max));
  size_t bytes = 0;
  for (size_t i = 0; i < stop->size(); ++i) {
    HR_ASSIGN_OR_RETURN(std::string text, StopString((*stop)[i], JoinJsonPath("stop", i), limits));
    bytes += text.size();
    stops->push_back(std::move(text));
  }
  if (bytes > limits.stops_bytes_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'stop' has {} bytes in all; the limit is {}. Send fewer or shorter stop strings.", bytes,
                            limits.stops_bytes_max),
                "stop");
  }
  return {};
}

}  // namespace

Result<Json> ParseBody(std::string_view body, const ApiLimits& limits, size_t* nodes_left) {
  size_t used = 0;
  auto parsed = ParseJson(body, {limits.body_bytes_max, limits.depth_max, limits.nodes_max}, &used);
  *nodes_left = limits.nodes_max - used;
  return parsed;
}

// For how long the prompt stays cached: OpenAI's words, and those of Anthropic's cache_control.
Status ReadRetention(JsonFields& fields, std::string_view key, GenerationRequest* request) {
  std::string word;
  HR_RETURN_IF_ERROR(Store(fields.OneOf(key, {"in_memory", "in-memory", "5m", "30m", "1h", "24h"}), &word));
  const int64_t seconds = word == "5m" ? 300 : word == "30m" ? 1800 : word == "1h" ? 3600 : word == "24h" ? 86'400 : 0;
  request->prompt_cache_seconds = std::max(request->prompt_cache_seconds, seconds);
  return {};
}

// OpenAI has it twice: prompt_cache_options.ttl takes the place of prompt_cache_retention. The longer one counts.
Status ReadPromptCache(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(Store(fields.String("prompt_cache_key", limits.name_bytes_max), &request->prompt_cache_key));
  HR_RETURN_IF_ERROR(Store(fields.String("cache_salt", limits.name_bytes_max), &request->cache_salt));
  HR_RETURN_IF_ERROR(ReadRetention(fields, "prompt_cache_retention", request));
  HR_ASSIGN_OR_RETURN(const Json* options, fields.Object("prompt_cache_options"));
  if (options == nullptr) return {};
  HR_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*options, "prompt_cache_options", limits.fields_max));
  HR_RETURN_IF_ERROR(ReadRetention(inner, "ttl", request));
  // Which parts of a prompt are written to the cache: here all of them are, which changes no answer.
  HR_RETURN_IF_ERROR(inner.OneOf("mode", {"implicit", "explicit"}));
  NoteUnknown(inner.Unread(limits.unknown_fields_max), "prompt_cache_options.", limits, &request->unknown_fields);
  return {};
}

Status ReadEnvelope(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(Store(fields.String("model", limits.name_bytes_max), &request->model));
  if (request->model.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "'model' is required; GET /v1/models lists the models of this server.",
                "model");
  }
  HR_RETURN_IF_ERROR(ReadStreaming(fields, limits, request));
  HR_RETURN_IF_ERROR(Store(fields.Integer("n", 1, limits.n_max), &request->n));
  request->best_of = request->n;
  HR_RETURN_IF_ERROR(Store(fields.String("user", limits.name_bytes_max), &request->user));
  HR_RETURN_IF_ERROR(
      Store(fields.String("safety_identifier", limits.safety_identifier_bytes_max), &request->safety_identifier));
  HR_RETURN_IF_ERROR(ReadPromptCache(fields, limits, request));
  HR_RETURN_IF_ERROR(Store(fields.OneOf("service_tier", {"auto", "default", "flex", "scale", "priority", "fast"}),
                           &request->service_tier));
  HR_RETURN_IF_ERROR(Store(fields.Integer("priority", INT32_MIN, INT32_MAX), &request->priority));
  int64_t deadline_ms = 0;
  bool has_deadline = false;
  HR_RETURN_IF_ERROR(Store(fields.Integer("deadline_ms", 1, INT64_MAX / 1'000'000), &deadline_ms, &has_deadline));
  if (has_deadline) request->deadline_ms = deadline_ms;
  bool store = false;  // accepted, also true: nothing is kept, and no answer depends on it
  HR_RETURN_IF_ERROR(Store(fields.Bool("store"), &store));
  return CheckMetadata(fields, limits);
}

Status ReadSampling(JsonFields& fields, const ApiLimits& limits, SamplingFields* sampling) {
  SamplingFields::Given& given = sampling->given;
  HR_RETURN_IF_ERROR(Store(fields.Number("temperature", 0, 2), &sampling->temperature, &given.temperature));
  HR_RETURN_IF_ERROR(Store(fields.Number("top_p", 0, 1), &sampling->top_p, &given.top_p));
  HR_RETURN_IF_ERROR(Store(fields.Number("min_p", 0, 1), &sampling->min_p, &given.min_p));
  HR_RETURN_IF_ERROR(Store(fields.Integer("top_k", -1, INT64_MAX), &sampling->top_k, &given.top_k));
  sampling->top_k = std::max<int64_t>(sampling->top_k, 0);
  HR_RETURN_IF_ERROR(Store(fields.Number("presence_penalty", -2, 2), &sampling->presence_penalty));
  HR_RETURN_IF_ERROR(Store(fields.Number("frequency_penalty", -2, 2), &sampling->frequency_penalty));
  HR_RETURN_IF_ERROR(Store(fields.Number("repetition_penalty", kRepetitionPenaltyMin, 10),
                           &sampling->repetition_penalty, &given.repetition_penalty));
  int64_t seed = 0;
  bool has_seed = false;
  HR_RETURN_IF_ERROR(Store(fields.Integer("seed", INT64_MIN, INT64_MAX), &seed, &has_seed));
  if (has_seed) sampling->seed = std::bit_cast<uint64_t>(seed);
  return ReadLogitBias(fields, limits, sampling);
}

Status ReadEnding(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(ReadStops(fields, limits, &request->stop));
  HR_ASSIGN_OR_RETURN(const Json* ids, fields.Array("stop_token_ids", limits.stop_token_ids_max));
  if (ids != nullptr) {
    HR_ASSIGN_OR_RETURN(request->stop_token_ids, ReadTokenIds(*ids, "stop_token_ids"));
  }
  HR_RETURN_IF_ERROR(Store(fields.Integer("min_tokens", 0, INT32_MAX), &request->min_tokens));
  if (request->max_tokens && request->min_tokens > *request->max_tokens) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'min_tokens' ({}) must not be above max_tokens ({}).", request->min_tokens, *request->max_tokens),
        "min_tokens");
  }
  HR_RETURN_IF_ERROR(Store(fields.Bool("ignore_eos"), &request->ignore_eos));
  HR_RETURN_IF_ERROR(Store(fields.Bool("include_stop_str_in_output"), &request->include_stop_str_in_output));
  HR_RETURN_IF_ERROR(Store(fields.Bool("skip_special_tokens"), &request->skip_special_tokens));
  bool special = false;
  bool has_special = false;
  HR_RETURN_IF_ERROR(Store(fields.Bool("add_special_tokens"), &special, &has_special));
  if (has_special) request->add_special_tokens = special;
  int prompt_logprobs = 0;
  bool has_prompt_logprobs = false;
  HR_RETURN_IF_ERROR(
      Store(fields.Integer("prompt_logprobs", 0, limits.top_logprobs_max), &prompt_logprobs, &has_prompt_logprobs));
  if (has_prompt_logprobs) request->prompt_logprobs = prompt_logprobs;
  return {};
}

Result<TemplateFields> ReadTemplate(JsonFields& fields, const Json& messages) {
  TemplateFields out;
  bool chosen = false;
  HR_RETURN_IF_ERROR(Store(fields.Bool("add_generation_prompt"), &out.add_generation_prompt, &chosen));
  HR_RETURN_IF_ERROR(Store(fields.Bool("continue_final_message"), &out.continue_final_message));
  HR_ASSIGN_OR_RETURN(const Json* kwargs, fields.Object("chat_template_kwargs"));
  if (kwargs != nullptr) out.kwargs = *kwargs;
  // A template is a program without a work limit (O-41): only the operator chooses it.
  if (out.kwargs.contains("chat_template")) {
    return Fail(
        ErrorCode::kUnsupported,
        "'chat_template_kwargs.chat_template' is not allowed: the operator of this server chooses the template.",
        "chat_template_kwargs.chat_template");
  }
  if (!out.continue_final_message) return out;
  if (chosen && out.add_generation_prompt) {
    return Fail(ErrorCode::kInvalidArgument,
                "'continue_final_message' and 'add_generation_prompt' cannot both be true.", "continue_final_message");
  }
  out.add_generation_prompt = false;
  if (messages.back()["role"] != "assistant") {
    return Fail(ErrorCode::kInvalidArgument, "'continue_final_message' needs a final message of the assistant.",
                "continue_final_message");
  }
  if (messages.back().contains("tool_calls")) {
    return Fail(ErrorCode::kInvalidArgument,
                "'continue_final_message' goes on with a text, but the final message has tool calls.",
                "continue_final_message");
  }
  return out;
}

Result<std::vector<int32_t>> ReadTokenIds(const Json& array, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& item = array[i];
    // The path is built only for an error: a prompt may hold a million ids.
    if (item.is_number_unsigned() && item.get<uint64_t>() <= INT32_MAX) {
      ids.push_back(item.get<int32_t>());
      continue;
    }
    HR_ASSIGN_OR_RETURN(const int64_t id, JsonInteger(item, 0, INT32_MAX, JoinJsonPath(path, i)));
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

void NoteUnknown(const std::vector<std::string>& names, std::string_view prefix, const ApiLimits& limits,
                 std::vector<std::string>* unknown) {
  for (const std::string& name : names) {
    if (unknown->size() >= limits.unknown_fields_max) return;
    std::string full = std::string(prefix) + name;
    if (std::ranges::find(*unknown, full) == unknown->end()) unknown->push_back(std::move(full));
  }
}

}  // namespace headrace
