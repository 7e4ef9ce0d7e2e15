#include "api/field_rules.h"

#include <fmt/format.h>
#include <span>
#include <string_view>

#include "api/request_fields.h"
#include "json/json_path.h"

namespace headrace {
namespace {

// The value, beside null, that asks for nothing.
enum class Neutral { kNone, kFalse, kTrue, kEmpty, kZero, kOne };

struct UnservedField {
  std::string_view name;
  Neutral neutral;
  std::string_view remedy;
};

constexpr std::string_view kLeaveOut = "leave it out";
constexpr std::string_view kConstrain =
    "use response_format, or structured_outputs with json, regex, choice or grammar";
constexpr std::string_view kThinking = "send enable_thinking inside chat_template_kwargs of a chat";
constexpr std::string_view kUseMaxTokens = "use max_tokens";
constexpr std::string_view kTopLevel = "its members belong at the top level of the body";
constexpr std::string_view kPromptText = "put the text into the messages or the prompt";

constexpr UnservedField kBothKinds[] = {
    // vLLM
    {"guided_decoding_backend", Neutral::kNone, kConstrain},
    {"guided_whitespace_pattern", Neutral::kNone, kConstrain},
    {"structural_tag", Neutral::kNone, kConstrain},
    {"use_beam_search", Neutral::kFalse, "use sampling or temperature 0"},
    {"length_penalty", Neutral::kOne, "it belongs to beam search, which is not served"},
    {"early_stopping", Neutral::kFalse, "it belongs to beam search, which is not served"},
    {"allowed_token_ids", Neutral::kEmpty, "use logit_bias"},
    {"bad_words", Neutral::kEmpty, "use logit_bias with -100 on their tokens"},
    {"logits_processors", Neutral::kEmpty, "use logit_bias"},
    {"truncate_prompt_tokens", Neutral::kNone, "shorten the prompt before sending it; nothing is cut silently here"},
    {"return_token_ids", Neutral::kFalse, "use logprobs or POST /tokenize"},
    {"return_tokens_as_token_ids", Neutral::kFalse, "use logprobs, whose bytes are exact"},
    {"spaces_between_special_tokens", Neutral::kTrue, kLeaveOut},
    {"request_id", Neutral::kEmpty, "send the header X-Request-Id"},
    {"kv_transfer_params", Neutral::kNone, kLeaveOut},
    {"vllm_xargs", Neutral::kEmpty, kLeaveOut},
    {"mm_processor_kwargs", Neutral::kEmpty, "the model reads text only"},
    {"prompt_embeds", Neutral::kNone, "send the prompt as text or token ids"},
    // llama.cpp
    {"grammar", Neutral::kEmpty, kConstrain},
    {"json_schema", Neutral::kEmpty, kConstrain},
    {"n_predict", Neutral::kNone, kUseMaxTokens},
    {"cache_prompt", Neutral::kTrue, "prompts are always cached, which changes no answer"},
    {"id_slot", Neutral::kNone, "requests are not bound to slots here"},
    {"timings_per_token", Neutral::kFalse, "ask for usage at the end of the stream"},
    {"n_probs", Neutral::kZero, "use logprobs"},
    {"samplers", Neutral::kEmpty, "the order of samplers is fixed"},
    {"repeat_penalty", Neutral::kOne, "use repetition_penalty"},
    {"mirostat", Neutral::kZero, "use temperature, top_p or min_p"},
    {"typical_p", Neutral::kOne, "use top_p or min_p"},
    {"dynatemp_range", Neutral::kZero, "use temperature"},
    {"xtc_probability", Neutral::kZero, kLeaveOut},
    {"dry_multiplier", Neutral::kZero, "use frequency_penalty or repetition_penalty"},
    {"lora", Neutral::kEmpty, "adapters are chosen by model name"},
    {"n_keep", Neutral::kZero, "a prompt that does not fit is refused; nothing of it is dropped"},
    {"repeat_last_n", Neutral::kNone, "repetition_penalty looks at prompt and answer whole"},
    {"t_max_predict_ms", Neutral::kZero, "use deadline_ms"},
    {"grammar_lazy", Neutral::kFalse, kConstrain},
    // TGI and Hugging Face
    {"max_new_tokens", Neutral::kNone, kUseMaxTokens},
    {"max_length", Neutral::kNone, kUseMaxTokens},
    {"typical", Neutral::kOne, "use top_p or min_p"},
    {"truncate", Neutral::kNone, "shorten the prompt before sending it; nothing is cut silently here"},
    {"do_sample", Neutral::kTrue, "use temperature 0 to take the likeliest token"},
    // Ollama
    {"format", Neutral::kEmpty, kConstrain},
    {"options", Neutral::kEmpty, kTopLevel},
    {"num_predict", Neutral::kNone, kUseMaxTokens},
    {"think", Neutral::kNone, kThinking},
    // Anthropic, DeepSeek, OpenRouter, Mistral, Cohere; extra_body is an argument of the Python SDK
    {"thinking", Neutral::kNone, kThinking},
    {"reasoning", Neutral::kEmpty, "use reasoning_effort in a chat"},
    {"random_seed", Neutral::kNone, "use seed"},
    {"safe_prompt", Neutral::kFalse, "put its text into a system message"},
    {"stop_sequences", Neutral::kEmpty, "use stop"},
    {"stop_regex", Neutral::kEmpty, "use stop, with the texts themselves"},
    {"extra_body", Neutral::kEmpty, kTopLevel},
    // SGLang
    {"regex", Neutral::kEmpty, kConstrain},
    {"ebnf", Neutral::kEmpty, kConstrain},
    {"lora_path", Neutral::kNone, "adapters are chosen by model name"},
    {"min_new_tokens", Neutral::kZero, "use min_tokens"},
    {"custom_logit_processor", Neutral::kNone, "use logit_bias"},
    // The same service under another route
    {"suffix", Neutral::kEmpty, "fill-in-the-middle is not served: send the text before it as the prompt"},
};

constexpr UnservedField kChatOnly[] = {
    {"audio", Neutral::kNone, "the model writes text only"},
    {"web_search_options", Neutral::kNone, "search on the client's side and add the result to the messages"},
    {"moderation", Neutral::kNone, "moderate on the client's side"},
    {"chat_template", Neutral::kNone,
     "the operator of this server chooses the template; chat_template_kwargs passes values to it"},
    {"documents", Neutral::kEmpty, kPromptText},
    {"enable_thinking", Neutral::kNone, "send it inside chat_template_kwargs"},
    {"include_reasoning", Neutral::kTrue, "ignore the reasoning field of the answer"},
    {"thinking_token_budget", Neutral::kNone, "use max_completion_tokens"},
    {"echo", Neutral::kFalse, "use /v1/completions"},
    {"best_of", Neutral::kOne, "use n"},
    {"prompt", Neutral::kNone, "use messages, or /v1/completions"},
};

constexpr UnservedField kCompletionOnly[] = {
    {"messages", Neutral::kNone, "use prompt, or /v1/chat/completions"},
    {"max_completion_tokens", Neutral::kNone, "use max_tokens"},
    {"top_logprobs", Neutral::kZero, "use logprobs with a number"},
    {"tools", Neutral::kEmpty, "use /v1/chat/completions"},
    {"chat_template", Neutral::kNone, "use /v1/chat/completions with the template of the model"},
};

bool AsksForNothing(const Json& value, Neutral neutral) {
  switch (neutral) {
    case Neutral::kNone:
      return false;
    case Neutral::kFalse:
      return value.is_boolean() && !value.get<bool>();
    case Neutral::kTrue:
      return value.is_boolean() && value.get<bool>();
    case Neutral::kEmpty:
      return (value.is_structured() && value.empty()) ||
             (value.is_string() && value.get_ref<const std::string&>().empty());
    case Neutral::kZero:
      return value.is_number() && value.get<double>() == 0;
    case Neutral::kOne:
      return value.is_number() && value.get<double>() == 1;
  }
  return false;
}

Status CheckTable(JsonFields& fields, std::span<const UnservedField> table) {
  for (const UnservedField& row : table) {
    const Json* value = fields.Find(row.name);
    if (value == nullptr || AsksForNothing(*value, row.neutral)) continue;
    return Fail(ErrorCode::kUnsupported, fmt::format("'{}' is not supported here: {}.", row.name, row.remedy),
                std::string(row.name));
  }
  return {};
}

// "none", "auto", "required" or "" for an object that names a tool.
Result<std::string_view> ToolChoice(const Json* choice, std::string_view path) {
  if (choice == nullptr) return "auto";
  if (choice->is_object()) return "";
  if (choice->is_string()) {
    const std::string_view text = choice->get_ref<const std::string&>();
    for (const std::string_view known : {"none", "auto", "required"}) {
      if (text == known) return known;
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' must be none, auto, required or an object that names a tool.", path),
              std::string(path));
}

// One generation of the tool fields: a list of what may be called and a choice.
Status CheckToolPair(JsonFields& fields, std::string_view list, std::string_view choice, const ApiLimits& limits) {
  HR_ASSIGN_OR_RETURN(const Json* tools, fields.Array(list, limits.tools_max));
  HR_ASSIGN_OR_RETURN(const std::string_view chosen, ToolChoice(fields.Find(choice), choice));
  const bool any = tools != nullptr && !tools->empty();
  if (any) {
    for (size_t i = 0; i < tools->size(); ++i) {
      if (!(*tools)[i].is_object())
        return Fail(JsonTypeError((*tools)[i], JoinJsonPath(std::string(list), i), "an object"));
    }
    if (chosen == "none") return {};
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' is not supported yet: leave it out, or send \"{}\": \"none\".", list, choice),
                std::string(list));
  }
  if (chosen == "none" || chosen == "auto") return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' asks for a call, but '{}' is empty.", choice, list),
              std::string(choice));
}

Status CheckModalities(JsonFields& fields) {
  constexpr size_t kModalitiesMax = 8;
  HR_ASSIGN_OR_RETURN(const Json* modalities, fields.Array("modalities", kModalitiesMax));
  if (modalities == nullptr) return {};
  for (const Json& modality : *modalities) {
    if (!modality.is_string()) return Fail(JsonTypeError(modality, "modalities", "an array of strings"));
    if (modality == "text") continue;
    return Fail(ErrorCode::kUnsupported, "'modalities': the model writes text only; send [\"text\"] or leave it out.",
                "modalities");
  }
  return {};
}

// Accepted, without effect until drafts come from predictions; the answer is the same either way (C30).
Status CheckPrediction(JsonFields& fields, const ApiLimits& limits) {
  HR_ASSIGN_OR_RETURN(const Json* prediction, fields.Object("prediction"));
  if (prediction == nullptr) return {};
  HR_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*prediction, "prediction", limits.fields_max));
  HR_RETURN_IF_ERROR(inner.OneOf("type", {"content"}));
  const Json* content = inner.Find("content");
  if (content == nullptr || content->is_string() || content->is_array()) return {};
  return Fail(JsonTypeError(*content, "prediction.content", "a string or an array of text parts"));
}

}  // namespace

Status CheckUnsupported(JsonFields& fields, GenerationRequest::Kind kind) {
  HR_RETURN_IF_ERROR(CheckTable(fields, kBothKinds));
  return kind == GenerationRequest::Kind::kChat ? CheckTable(fields, kChatOnly) : CheckTable(fields, kCompletionOnly);
}

Status CheckTools(JsonFields& fields, const ApiLimits& limits) {
  HR_RETURN_IF_ERROR(CheckToolPair(fields, "tools", "tool_choice", limits));
  HR_RETURN_IF_ERROR(CheckToolPair(fields, "functions", "function_call", limits));
  bool parallel = true;  // without calls there is nothing to hold back
  return Store(fields.Bool("parallel_tool_calls"), &parallel);
}

Status ReadChatOptions(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request) {
  HR_RETURN_IF_ERROR(CheckModalities(fields));
  HR_RETURN_IF_ERROR(
      Store(fields.OneOf("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
            &request->reasoning_effort));
  HR_RETURN_IF_ERROR(Store(fields.OneOf("verbosity", {"low", "medium", "high"}), &request->verbosity));
  return CheckPrediction(fields, limits);
}

}  // namespace headrace
