#include "api/request.h"

#include <fmt/format.h>

#include "api/constraint.h"
#include "api/field_rules.h"
#include "api/messages.h"
#include "api/request_fields.h"
#include "json/json_fields.h"
#include "json/json_path.h"

namespace headrace {
namespace {

// What /v1/completions generates when max_tokens is absent, as OpenAI documents it.
constexpr int64_t kCompletionTokensDefault = 16;

// max_completion_tokens is the newer name and wins (C8).
Status ReadChatTokensMax(JsonFields& fields, GenerationRequest* request) {
  HR_ASSIGN_OR_RETURN(request->max_tokens, fields.Integer("max_tokens", 1, INT64_MAX));
  HR_ASSIGN_OR_RETURN(const auto newer, fields.Integer("max_completion_tokens", 1, INT64_MAX));
  if (newer) request->max_tokens = newer;
  return {};
}

Status ReadChatLogprobs(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(Store(fields.Bool("logprobs"), &request->logprobs));
  HR_RETURN_IF_ERROR(Store(fields.Integer("top_logprobs", 0, limits.top_logprobs_max), &request->top_logprobs));
  if (request->top_logprobs > 0 && !request->logprobs) {
    return Fail(ErrorCode::kInvalidArgument, "'top_logprobs' is only allowed together with \"logprobs\": true.",
                "top_logprobs");
  }
  return {};
}

Status ReadMessages(JsonFields& fields, const ApiLimits& limits, size_t nodes_left, GenerationRequest* request) {
  HR_ASSIGN_OR_RETURN(const Json* messages, fields.Array("messages", limits.messages_max));
  if (messages == nullptr || messages->empty()) {
    return Fail(ErrorCode::kInvalidArgument, "'messages' must hold at least one message.", "messages");
  }
  HR_ASSIGN_OR_RETURN(request->messages, NormaliseMessages(*messages, limits, nodes_left, &request->unknown_fields));
  HR_ASSIGN_OR_RETURN(TemplateFields chosen, ReadTemplate(fields, request->messages));
  request->add_generation_prompt = chosen.add_generation_prompt;
  request->continue_final_message = chosen.continue_final_message;
  request->chat_template_kwargs = std::move(chosen.kwargs);
  return {};
}

Error EmptyIds(std::string path) {
  std::string message = fmt::format("'{}' holds no token ids; at least one is needed.", path);
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(path), 0};
}

// An array of prompts: texts or lists of ids, one kind throughout.
Status ReadPromptList(const Json& list, const ApiLimits& limits, std::vector<Prompt>* prompts) {
  if (list.size() > limits.prompts_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'prompt' has {} prompts; the limit is {}.", list.size(), limits.prompts_max), "prompt");
  }
  const bool texts = list.front().is_string();
  for (size_t i = 0; i < list.size(); ++i) {
    std::string path = JoinJsonPath("prompt", i);
    if (texts ? !list[i].is_string() : !list[i].is_array()) {
      return Fail(
          JsonTypeError(list[i], std::move(path), texts ? "a string like the first prompt" : "an array of token ids"));
    }
    if (texts) {
      prompts->emplace_back(list[i].get<std::string>());
      continue;
    }
    if (list[i].empty()) return Fail(EmptyIds(std::move(path)));
    HR_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadTokenIds(list[i], path));
    prompts->emplace_back(std::move(ids));
  }
  return {};
}

// A text, texts, ids or lists of ids (L1).
Status ReadPrompts(JsonFields& fields, const ApiLimits& limits, std::vector<Prompt>* prompts) {
  const Json* prompt = fields.Find("prompt");
  if (prompt == nullptr) return Fail(ErrorCode::kInvalidArgument, "'prompt' is required.", "prompt");
  if (prompt->is_string()) {
    prompts->emplace_back(prompt->get<std::string>());
    return {};
  }
  if (!prompt->is_array())
    return Fail(JsonTypeError(*prompt, "prompt",
                              "a string, an array of strings, an array of token ids or an array of such arrays"));
  if (prompt->empty())
    return Fail(ErrorCode::kInvalidArgument, "'prompt' is an empty array; at least one prompt is needed.", "prompt");
  if (!prompt->front().is_number()) return ReadPromptList(*prompt, limits, prompts);
  HR_ASSIGN_OR_RETURN(std::vector<int32_t> ids, ReadTokenIds(*prompt, "prompt"));
  prompts->emplace_back(std::move(ids));
  return {};
}

// L4. Candidates are ranked when they are whole, so there is nothing to stream before.
Status ReadBestOf(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_ASSIGN_OR_RETURN(const auto best_of, fields.Integer("best_of", 0, limits.n_max));
  if (!best_of) return {};
  if (*best_of < request->n) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'best_of' ({}) must not be below 'n' ({}).", *best_of, request->n), "best_of");
  }
  if (*best_of > request->n && request->stream) {
    return Fail(ErrorCode::kInvalidArgument,
                "'best_of' above 'n' cannot be streamed: the choices are known when all candidates are whole.",
                "best_of");
  }
  request->best_of = static_cast<int>(*best_of);
  return {};
}

Status ReadCompletionOutput(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(ReadBestOf(fields, limits, request));
  HR_RETURN_IF_ERROR(Store(fields.Bool("echo"), &request->echo));
  HR_RETURN_IF_ERROR(
      Store(fields.Integer("logprobs", 0, limits.top_logprobs_max), &request->top_logprobs, &request->logprobs));
  HR_ASSIGN_OR_RETURN(request->max_tokens, fields.Integer("max_tokens", 0, INT64_MAX));
  if (!request->max_tokens) request->max_tokens = kCompletionTokensDefault;
  if (*request->max_tokens == 0 && !request->echo) {
    return Fail(ErrorCode::kInvalidArgument, "'max_tokens' 0 is only allowed together with \"echo\": true.",
                "max_tokens");
  }
  const std::string field = request->best_of > request->n ? "best_of" : "n";
  if (request->prompts.size() * static_cast<size_t>(request->best_of) > limits.choices_max) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} prompts with '{}' {} make more than {} choices.", request->prompts.size(), field,
                            request->best_of, limits.choices_max),
                field);
  }
  return {};
}

Status CheckId(int32_t id, int32_t vocab_size, std::string_view field) {
  if (id >= 0 && id < vocab_size) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' holds the token id {}; the ids of this model are 0 to {}.", field, id, vocab_size - 1),
              std::string(field));
}

}  // namespace

void SamplingFields::FillFrom(const SamplingDefaults& defaults) {
  if (!given.temperature) temperature = defaults.temperature.value_or(temperature);
  if (!given.top_p) top_p = defaults.top_p.value_or(top_p);
  if (!given.min_p) min_p = defaults.min_p.value_or(min_p);
  if (!given.repetition_penalty) repetition_penalty = defaults.repetition_penalty.value_or(repetition_penalty);
  if (!given.top_k) top_k = defaults.top_k.value_or(top_k);
}

Result<GenerationRequest> ParseChatRequest(std::string_view body, const ApiLimits& limits) {
  size_t nodes_left = 0;
  HR_ASSIGN_OR_RETURN(const Json json, ParseBody(body, limits, &nodes_left));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "", limits.fields_max));
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kChat;
  HR_RETURN_IF_ERROR(ReadEnvelope(fields, limits, &request));
  HR_RETURN_IF_ERROR(CheckUnsupported(fields, request.kind));
  HR_RETURN_IF_ERROR(CheckTools(fields, limits));
  HR_RETURN_IF_ERROR(ReadConstraint(fields, &request.constraint));
  HR_RETURN_IF_ERROR(ReadChatOptions(fields, limits, &request));
  HR_RETURN_IF_ERROR(ReadSampling(fields, limits, &request.sampling));
  HR_RETURN_IF_ERROR(ReadChatTokensMax(fields, &request));
  HR_RETURN_IF_ERROR(ReadChatLogprobs(fields, limits, &request));
  HR_RETURN_IF_ERROR(ReadEnding(fields, limits, &request));
  HR_RETURN_IF_ERROR(ReadMessages(fields, limits, nodes_left, &request));
  NoteUnknown(fields.Unread(limits.unknown_fields_max), "", limits, &request.unknown_fields);
  return request;
}

Status ReadChatSettings(const Json& object, const ApiLimits& limits, GenerationRequest* request) {
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(object, "", limits.fields_max));
  HR_RETURN_IF_ERROR(ReadSampling(fields, limits, &request->sampling));
  HR_RETURN_IF_ERROR(ReadChatTokensMax(fields, request));
  return ReadEnding(fields, limits, request);
}

Result<GenerationRequest> ParseCompletionRequest(std::string_view body, const ApiLimits& limits) {
  size_t nodes_left = 0;
  HR_ASSIGN_OR_RETURN(const Json json, ParseBody(body, limits, &nodes_left));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "", limits.fields_max));
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kCompletion;
  HR_RETURN_IF_ERROR(ReadEnvelope(fields, limits, &request));
  HR_RETURN_IF_ERROR(CheckUnsupported(fields, request.kind));
  HR_RETURN_IF_ERROR(ReadConstraint(fields, &request.constraint));
  HR_RETURN_IF_ERROR(ReadPrompts(fields, limits, &request.prompts));
  HR_RETURN_IF_ERROR(ReadSampling(fields, limits, &request.sampling));
  HR_RETURN_IF_ERROR(ReadCompletionOutput(fields, limits, &request));
  HR_RETURN_IF_ERROR(ReadEnding(fields, limits, &request));
  NoteUnknown(fields.Unread(limits.unknown_fields_max), "", limits, &request.unknown_fields);
  return request;
}

Status ValidateTokenIds(const GenerationRequest& request, int32_t vocab_size) {
  for (const auto& [id, bias] : request.sampling.logit_bias) HR_RETURN_IF_ERROR(CheckId(id, vocab_size, "logit_bias"));
  for (const int32_t id : request.stop_token_ids) HR_RETURN_IF_ERROR(CheckId(id, vocab_size, "stop_token_ids"));
  for (const Prompt& prompt : request.prompts) {
    const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
    if (ids == nullptr) continue;
    for (const int32_t id : *ids) HR_RETURN_IF_ERROR(CheckId(id, vocab_size, "prompt"));
  }
  return {};
}

}  // namespace headrace
