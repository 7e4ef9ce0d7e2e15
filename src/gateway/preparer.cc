#include "gateway/preparer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/random.h"
#include "text/stop_matcher.h"

namespace headrace {

// What the API lets through, the matcher takes.
static_assert(ApiLimits{}.stops_max <= kStopStringsMax);
static_assert(ApiLimits{}.stop_bytes_max <= kStopStringBytesMax);
static_assert(ApiLimits{}.stops_bytes_max <= kStopBytesMax);

Status Preparer::Prepare(PreparedRequest* request) const {
  GenerationRequest& api = request->api;
  HR_RETURN_IF_ERROR(ValidateTokenIds(api, tokenizer_.vocab_size()));
  if (api.prompt_logprobs) {
    return Fail(ErrorCode::kUnsupported,
                "prompt_logprobs is not supported here; use /v1/completions with echo and logprobs.",
                "prompt_logprobs");
  }
  api.sampling.FillFrom(defaults_);
  request->seed = api.sampling.seed.value_or(EntropySeed());
  HR_RETURN_IF_ERROR(CompileGrammar(api.constraint, &request->grammar));
  if (api.kind == GenerationRequest::Kind::kCompletion) return EncodeCompletions(request);
  HR_ASSIGN_OR_RETURN(auto ids, EncodeChat(api.messages, api.add_generation_prompt, api.continue_final_message,
                                           api.chat_template_kwargs));
  request->prompts.push_back(std::move(ids));
  return {};
}

Status Preparer::CompileGrammar(const Constraint& constraint, std::shared_ptr<const Grammar>* out) const {
  using Kind = Constraint::Kind;
  if (constraint.kind == Kind::kNone) return {};
  const GrammarKind kind = constraint.kind == Kind::kJsonSchema ? GrammarKind::kJsonSchema
                           : constraint.kind == Kind::kRegex    ? GrammarKind::kRegex
                                                                : GrammarKind::kLark;
  auto grammar = Grammar::Compile(tokenizer_, kind, constraint.text);
  if (!grammar) {
    Error error = std::move(grammar).error();
    error.message = fmt::format("'{}' cannot be enforced: {}", constraint.field, error.message);
    error.field = constraint.field;
    return Fail(std::move(error));
  }
  *out = std::move(*grammar);
  return {};
}

Status Preparer::EncodeCompletions(PreparedRequest* request) const {
  const GenerationRequest& api = request->api;
  for (size_t i = 0; i < api.prompts.size(); ++i) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&api.prompts[i])) {
      request->prompts.push_back(*ids);
      continue;
    }
    HR_ASSIGN_OR_RETURN(
        auto ids, tokenizer_.Encode(std::get<std::string>(api.prompts[i]),
                                    {.parse_special = true, .add_special = api.add_special_tokens.value_or(true)}));
    // An empty text is continued from the token that starts or, without one, ends a text.
    if (ids.empty()) ids.push_back(tokenizer_.bos() >= 0 ? tokenizer_.bos() : std::max(tokenizer_.eos(), 0));
    request->prompts.push_back(std::move(ids));
  }
  return {};
}

Result<std::vector<int32_t>> Preparer::EncodeChat(const Json& messages, bool add_generation_prompt,
                                                  bool continue_final_message, const Json& arguments) const {
  if (prompts_ == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                "This model has no chat template: it completes text. Use /v1/completions, or start the server with "
                "--chat-template FILE.",
                "messages");
  }
  Json context = Json::object();
  context["messages"] = messages;
  for (const auto& [key, value] : arguments.items()) {
    if (std::ranges::find(kTemplateArgumentsAllowed, key) == std::end(kTemplateArgumentsAllowed)) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("chat_template_kwargs may set {}; not this field.", fmt::join(kTemplateArgumentsAllowed, ", ")),
          "chat_template_kwargs." + key.substr(0, 64));
    }
    context[key] = value;
  }
  context["add_generation_prompt"] = add_generation_prompt;
  HR_ASSIGN_OR_RETURN(RenderedPrompt rendered,
                      continue_final_message ? prompts_->ContinueChat(context) : prompts_->EncodeChat(context));
  if (rendered.ids.empty())
    return Fail(ErrorCode::kInvalidArgument, "The chat template makes an empty prompt of these messages.", "messages");
  return std::move(rendered.ids);
}

Result<std::vector<int32_t>> Preparer::Tokenize(const TokenizeRequest& request) const {
  if (request.prompt)
    return tokenizer_.Encode(*request.prompt, {.parse_special = true, .add_special = request.add_special_tokens});
  return EncodeChat(request.messages, request.add_generation_prompt, request.continue_final_message,
                    request.chat_template_kwargs);
}

}  // namespace headrace
