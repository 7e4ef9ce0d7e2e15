#include "api/tokenize.h"

#include <fmt/format.h>

#include "api/messages.h"
#include "api/request_fields.h"
#include "json/json_fields.h"

namespace headrace {
namespace {

Status ReadChatInput(JsonFields& fields, const Json& messages, const ApiLimits& limits, size_t nodes_left,
                     TokenizeRequest* request) {
  if (messages.empty())
    return Fail(ErrorCode::kInvalidArgument, "'messages' must hold at least one message.", "messages");
  HR_ASSIGN_OR_RETURN(request->messages, NormaliseMessages(messages, limits, nodes_left, &request->unknown_fields));
  HR_ASSIGN_OR_RETURN(TemplateFields chosen, ReadTemplate(fields, request->messages));
  request->add_generation_prompt = chosen.add_generation_prompt;
  request->continue_final_message = chosen.continue_final_message;
  request->chat_template_kwargs = std::move(chosen.kwargs);
  return {};
}

// Tools would change the count, so they are refused like everywhere else.
Status CheckUnserved(JsonFields& fields) {
  for (const char* name : {"tools", "chat_template", "mm_processor_kwargs"}) {
    const Json* value = fields.Find(name);
    if (value == nullptr || (value->is_structured() && value->empty())) continue;
    return Fail(ErrorCode::kUnsupported, fmt::format("'{}' is not supported here: leave it out.", name), name);
  }
  return {};
}

}  // namespace

Result<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const ApiLimits& limits) {
  size_t nodes_left = 0;
  HR_ASSIGN_OR_RETURN(const Json json, ParseBody(body, limits, &nodes_left));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "", limits.fields_max));
  TokenizeRequest request;
  HR_RETURN_IF_ERROR(Store(fields.String("model", limits.name_bytes_max), &request.model));
  HR_RETURN_IF_ERROR(CheckUnserved(fields));
  HR_ASSIGN_OR_RETURN(request.prompt, fields.String("prompt", limits.body_bytes_max));
  HR_ASSIGN_OR_RETURN(const Json* messages, fields.Array("messages", limits.messages_max));
  if (request.prompt.has_value() == (messages != nullptr)) {
    return Fail(ErrorCode::kInvalidArgument, "Exactly one of 'prompt' and 'messages' is needed.", "prompt");
  }
  if (messages != nullptr) HR_RETURN_IF_ERROR(ReadChatInput(fields, *messages, limits, nodes_left, &request));
  request.add_special_tokens = messages == nullptr;
  HR_RETURN_IF_ERROR(Store(fields.Bool("add_special_tokens"), &request.add_special_tokens));
  HR_RETURN_IF_ERROR(Store(fields.Bool("return_token_strs"), &request.return_token_strs));
  NoteUnknown(fields.Unread(limits.unknown_fields_max), "", limits, &request.unknown_fields);
  return request;
}

Result<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body, const ApiLimits& limits) {
  size_t nodes_left = 0;
  HR_ASSIGN_OR_RETURN(const Json json, ParseBody(body, limits, &nodes_left));
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "", limits.fields_max));
  DetokenizeRequest request;
  HR_RETURN_IF_ERROR(Store(fields.String("model", limits.name_bytes_max), &request.model));
  HR_ASSIGN_OR_RETURN(const Json* tokens, fields.Array("tokens", limits.nodes_max));
  if (tokens == nullptr) return Fail(ErrorCode::kInvalidArgument, "'tokens' is required.", "tokens");
  HR_ASSIGN_OR_RETURN(request.tokens, ReadTokenIds(*tokens, "tokens"));
  NoteUnknown(fields.Unread(limits.unknown_fields_max), "", limits, &request.unknown_fields);
  return request;
}

Status ValidateTokenIds(const DetokenizeRequest& request, int32_t vocab_size) {
  for (const int32_t id : request.tokens) {
    if (id >= 0 && id < vocab_size) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("'tokens' holds the token id {}; the ids of this model are 0 to {}.", id, vocab_size - 1),
                "tokens");
  }
  return {};
}

std::string TokenizeBody(std::span<const int32_t> tokens, int64_t max_model_len,
                         const std::vector<std::string>* token_strs) {
  std::string out = R"({"count":)";
  AppendJsonInteger(out, static_cast<int64_t>(tokens.size()));
  out += R"(,"max_model_len":)";
  AppendJsonInteger(out, max_model_len);
  out += R"(,"tokens":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonInteger(out, tokens[i]);
  }
  out += R"(],"token_strs":)";
  if (token_strs == nullptr) return out + "null}";
  out += '[';
  for (size_t i = 0; i < token_strs->size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonString(out, (*token_strs)[i]);
  }
  out += "]}";
  return out;
}

std::string DetokenizeBody(std::string_view prompt) {
  std::string out = R"({"prompt":)";
  AppendJsonString(out, prompt);
  out += '}';
  return out;
}

}  // namespace headrace
