#include "api/messages.h"

#include <fmt/format.h>
#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "api/request_fields.h"
#include "json/json_fields.h"
#include "json/json_path.h"

namespace headrace {
namespace {

// The most fields a normalised message has (7), rounded up; reserved, since a growing ordered object copies its
// members.
constexpr size_t kMessageFieldsMax = 8;

struct ModalityPart {
  std::string_view type;
  std::string_view modality;
};
constexpr ModalityPart kModalityParts[] = {
    {"image_url", "images"}, {"image", "images"},     {"input_image", "images"}, {"video_url", "video"},
    {"video", "video"},      {"audio_url", "audio"},  {"input_audio", "audio"},  {"audio", "audio"},
    {"file", "files"},       {"input_file", "files"},
};

class MessageNormaliser {
 public:
  MessageNormaliser(const ApiLimits& limits, size_t nodes_left, std::vector<std::string>* unknown)
      : limits_(limits), nodes_left_(nodes_left), unknown_(unknown) {}

  Result<Json> Message(const Json& message, size_t index);

 private:
  Result<std::string> Content(JsonFields& fields, const std::string& role);
  Result<std::string> JoinParts(const Json& parts, const std::string& path, const std::string& role);
  Result<std::string> PartText(const Json& part, const std::string& path, const std::string& role);
  Status AddReasoning(JsonFields& fields, Json::object_t* out);
  Status AddToolCalls(JsonFields& fields, const std::string& role, size_t index, Json::object_t* out);
  Result<Json> ToolCall(const Json& call, const std::string& path);
  Result<Json> LegacyCall(const Json& function, const std::string& path, size_t index);
  Result<Json> Function(const Json& function, const std::string& path, std::string id);
  Result<Json> Arguments(const Json* value, std::string path);
  Result<std::optional<std::string>> ResultId(JsonFields& fields, const std::string& role,
                                              const std::optional<std::string>& name);
  void Note(const JsonFields& fields, std::string_view prefix) {
    NoteUnknown(fields.Unread(limits_.unknown_fields_max), prefix, limits_, unknown_);
  }

  const ApiLimits& limits_;
  size_t nodes_left_;
  std::vector<std::string>* const unknown_;
  std::unordered_set<std::string> call_ids_;
  std::string legacy_id_;  // of the last function_call; "" when none waits for its result
  std::string legacy_name_;
};

Error Invalid(std::string path, std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(path), 0};
}

// Message() reserved the room, so this neither searches nor moves.
void Append(Json::object_t* object, const char* key, Json value) {
  static_cast<Json::object_t::Container&>(*object).emplace_back(key, std::move(value));
}

Json FunctionCall(std::string id, std::string name, Json arguments) {
  Json::object_t function;
  function.reserve(2);
  Append(&function, "name", std::move(name));
  Append(&function, "arguments", std::move(arguments));
  Json::object_t call;
  call.reserve(3);
  Append(&call, "id", std::move(id));
  Append(&call, "type", "function");
  Append(&call, "function", std::move(function));
  return Json(std::move(call));
}

Result<Json> MessageNormaliser::Message(const Json& message, size_t index) {
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(message, JoinJsonPath("messages", index), limits_.fields_max));
  HR_ASSIGN_OR_RETURN(auto role,
                      fields.OneOf("role", {"system", "developer", "user", "assistant", "tool", "function"}));
  if (!role) return Fail(Invalid(fields.Path("role"), fmt::format("'{}' is required.", fields.Path("role"))));
  HR_ASSIGN_OR_RETURN(std::string content, Content(fields, *role));
  HR_ASSIGN_OR_RETURN(auto name, fields.String("name", limits_.name_bytes_max));
  HR_ASSIGN_OR_RETURN(auto result_id, ResultId(fields, *role, name));

  Json::object_t out;
  out.reserve(kMessageFieldsMax);
  Append(&out, "role", *role == "developer" ? "system" : *role == "function" ? "tool" : *role);
  Append(&out, "content", std::move(content));
  if (name) Append(&out, "name", std::move(*name));
  HR_RETURN_IF_ERROR(AddReasoning(fields, &out));
  HR_RETURN_IF_ERROR(AddToolCalls(fields, *role, index, &out));
  if (result_id) Append(&out, "tool_call_id", std::move(*result_id));
  (void)fields.Find("annotations");  // of an answer that is sent back as history
  Note(fields, "messages[].");
  return Json(std::move(out));
}

Result<std::string> MessageNormaliser::Content(JsonFields& fields, const std::string& role) {
  const Json* content = fields.Find("content");
  std::string path = fields.Path("content");
  std::string text;
  if (content == nullptr) {
    // A turn that only called tools has no text; a function's result may be null in the old dialect.
    if (role != "assistant" && role != "function")
      return Fail(Invalid(path, fmt::format("'{}' is required for the role {}.", path, role)));
  } else if (content->is_string()) {
    text = content->get_ref<const std::string&>();
  } else if (content->is_array()) {
    HR_ASSIGN_OR_RETURN(text, JoinParts(*content, path, role));
  } else {
    return Fail(JsonTypeError(*content, std::move(path), "a string or an array of content parts"));
  }
  HR_ASSIGN_OR_RETURN(const Json* audio, fields.Object("audio"));
  if (audio != nullptr)
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}': the model does not read audio; send its transcript.", fields.Path("audio")),
                fields.Path("audio"));
  HR_ASSIGN_OR_RETURN(auto refusal, fields.String("refusal", SIZE_MAX));
  return text.empty() && refusal ? std::move(*refusal) : std::move(text);
}

Result<std::string> MessageNormaliser::JoinParts(const Json& parts, const std::string& path, const std::string& role) {
  if (parts.size() > limits_.parts_max)
    return Fail(
        Invalid(path, fmt::format("'{}' has {} parts; the limit is {}.", path, parts.size(), limits_.parts_max)));
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    HR_ASSIGN_OR_RETURN(const std::string part, PartText(parts[i], JoinJsonPath(path, i), role));
    if (i > 0) text += '\n';
    text += part;
  }
  return text;
}

Result<std::string> MessageNormaliser::PartText(const Json& part, const std::string& path, const std::string& role) {
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(part, path, limits_.fields_max));
  HR_ASSIGN_OR_RETURN(const auto type, fields.String("type", limits_.name_bytes_max));
  if (!type) return Fail(Invalid(fields.Path("type"), fmt::format("'{}' is required.", fields.Path("type"))));
  for (const ModalityPart& row : kModalityParts) {
    if (*type != row.type) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}': the model does not read {}; send text parts only.", path, row.modality),
                fields.Path("type"));
  }
  const bool is_refusal = *type == "refusal" && role == "assistant";
  if (!is_refusal && *type != "text" && *type != "input_text" && *type != "output_text") {
    return Fail(Invalid(fields.Path("type"), fmt::format("'{}' must be text.", fields.Path("type"))));
  }
  const char* key = is_refusal ? "refusal" : "text";
  HR_ASSIGN_OR_RETURN(auto text, fields.String(key, SIZE_MAX));
  if (!text) return Fail(Invalid(fields.Path(key), fmt::format("'{}' is required.", fields.Path(key))));
  Note(fields, "messages[].content[].");
  return std::move(*text);
}

Status MessageNormaliser::AddReasoning(JsonFields& fields, Json::object_t* out) {
  HR_ASSIGN_OR_RETURN(auto content, fields.String("reasoning_content", SIZE_MAX));
  HR_ASSIGN_OR_RETURN(auto reasoning, fields.String("reasoning", SIZE_MAX));
  if (!content) content = std::move(reasoning);
  if (!content) return {};
  Append(out, "reasoning_content", *content);
  Append(out, "reasoning", std::move(*content));
  return {};
}

Status MessageNormaliser::AddToolCalls(JsonFields& fields, const std::string& role, size_t index, Json::object_t* out) {
  const std::string path = fields.Path("tool_calls");
  HR_ASSIGN_OR_RETURN(const Json* calls, fields.Array("tool_calls", limits_.tool_calls_max));
  HR_ASSIGN_OR_RETURN(const Json* legacy, fields.Object("function_call"));
  if ((calls == nullptr || calls->empty()) && legacy == nullptr) return {};
  if (role != "assistant") return Fail(Invalid(path, fmt::format("'{}': only the assistant calls tools.", path)));
  Json::array_t out_calls;
  for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
    HR_ASSIGN_OR_RETURN(Json call, ToolCall((*calls)[i], JoinJsonPath(path, i)));
    out_calls.push_back(std::move(call));
  }
  if (legacy != nullptr) {
    HR_ASSIGN_OR_RETURN(Json call, LegacyCall(*legacy, fields.Path("function_call"), index));
    out_calls.push_back(std::move(call));
  }
  Append(out, "tool_calls", std::move(out_calls));
  return {};
}

Result<Json> MessageNormaliser::ToolCall(const Json& call, const std::string& path) {
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(call, path, limits_.fields_max));
  HR_ASSIGN_OR_RETURN(const auto type, fields.String("type", limits_.name_bytes_max));
  if (type && *type != "function")
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' must be function; other tools are not supported yet.", fields.Path("type")),
                fields.Path("type"));
  HR_ASSIGN_OR_RETURN(auto id, fields.String("id", limits_.name_bytes_max));
  if (!id || id->empty()) return Fail(Invalid(fields.Path("id"), fmt::format("'{}' is required.", fields.Path("id"))));
  HR_ASSIGN_OR_RETURN(const Json* function, fields.Object("function"));
  if (function == nullptr)
    return Fail(Invalid(fields.Path("function"), fmt::format("'{}' is required.", fields.Path("function"))));
  call_ids_.insert(*id);
  Note(fields, "messages[].tool_calls[].");
  return Function(*function, fields.Path("function"), std::move(*id));
}

// The old dialect has no ids: the call gets one, and the next function message of that name is its result.
Result<Json> MessageNormaliser::LegacyCall(const Json& function, const std::string& path, size_t index) {
  HR_ASSIGN_OR_RETURN(Json call, Function(function, path, fmt::format("call_{}", index)));
  legacy_id_ = call["id"].get<std::string>();
  legacy_name_ = call["function"]["name"].get<std::string>();
  return call;
}

Result<Json> MessageNormaliser::Function(const Json& function, const std::string& path, std::string id) {
  HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(function, path, limits_.fields_max));
  HR_ASSIGN_OR_RETURN(auto name, fields.String("name", limits_.name_bytes_max));
  if (!name || name->empty())
    return Fail(Invalid(fields.Path("name"), fmt::format("'{}' is required.", fields.Path("name"))));
  HR_ASSIGN_OR_RETURN(Json arguments, Arguments(fields.Find("arguments"), fields.Path("arguments")));
  return FunctionCall(std::move(id), std::move(*name), std::move(arguments));
}

Result<Json> MessageNormaliser::Arguments(const Json* value, std::string path) {
  if (value == nullptr) return Json::object();
  if (value->is_object()) return *value;
  if (!value->is_string()) return Fail(JsonTypeError(*value, std::move(path), "a string that holds a JSON object"));
  const std::string& text = value->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  size_t used = 0;
  auto parsed = ParseJson(text, {text.size(), limits_.depth_max, nodes_left_}, &used);
  nodes_left_ -= used;
  if (parsed && parsed->is_null()) return Json::object();
  if (parsed && parsed->is_object()) return std::move(*parsed);
  const std::string reason = parsed ? "it is not an object." : parsed.error().message;
  return Fail(
      Invalid(path, fmt::format("'{}' must hold a JSON object: {} Send \"{{}}\" or leave the call and its result out.",
                                path, reason)));
}

// Results may come in any order, but only for calls that were made.
Result<std::optional<std::string>> MessageNormaliser::ResultId(JsonFields& fields, const std::string& role,
                                                               const std::optional<std::string>& name) {
  HR_ASSIGN_OR_RETURN(auto id, fields.String("tool_call_id", limits_.name_bytes_max));
  if (role == "function") {
    if (!name || legacy_id_.empty() || *name != legacy_name_) {
      return Fail(Invalid(fields.Path("name"), fmt::format("'{}' must name the function of an earlier function_call.",
                                                           fields.Path("name"))));
    }
    return legacy_id_;
  }
  if (role != "tool") return std::nullopt;
  if (!id)
    return Fail(Invalid(fields.Path("tool_call_id"), fmt::format("'{}' is required.", fields.Path("tool_call_id"))));
  if (!call_ids_.contains(*id)) {
    return Fail(Invalid(
        fields.Path("tool_call_id"),
        fmt::format("'{}' is not the id of an earlier tool call of the assistant.", fields.Path("tool_call_id"))));
  }
  return id;
}

}  // namespace

Result<Json> NormaliseMessages(const Json& messages, const ApiLimits& limits, size_t nodes_left,
                               std::vector<std::string>* unknown) {
  MessageNormaliser normaliser(limits, nodes_left, unknown);
  Json::array_t out;
  out.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    HR_ASSIGN_OR_RETURN(Json message, normaliser.Message(messages[i], i));
    out.push_back(std::move(message));
  }
  return Json(std::move(out));
}

}  // namespace headrace
