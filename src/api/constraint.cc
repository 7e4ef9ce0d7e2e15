#include "api/constraint.h"

#include <fmt/format.h>

#include <utility>

namespace headrace {
namespace {

using Kind = Constraint::Kind;

// Keeps one, refuses a second.
class OnlyOne {
 public:
  explicit OnlyOne(Constraint* out) : out_(out) {}

  Status Take(Kind kind, std::string text, std::string field) {
    if (out_->kind != Kind::kNone) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' and '{}' both say what the answer must be; send one.", out_->field, field), field);
    }
    if (text.size() > kConstraintBytesMax) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' has {} bytes; at most {} are taken.", field, text.size(), kConstraintBytesMax),
                  field);
    }
    *out_ = {kind, std::move(text), std::move(field)};
    return {};
  }

 private:
  Constraint* const out_;
};

// A schema as an object (or true or false), or as the text of one.
Status TakeSchema(const Json& schema, const std::string& path, OnlyOne* out) {
  if (schema.is_string()) return out->Take(Kind::kJsonSchema, schema.get<std::string>(), path);
  if (!schema.is_object() && !schema.is_boolean()) return std::unexpected(JsonTypeError(schema, path, "a JSON schema"));
  return out->Take(Kind::kJsonSchema, schema.dump(), path);
}

Status TakeChoices(const Json& choices, const std::string& path, OnlyOne* out) {
  if (choices.empty())
    return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' must name at least one text.", path), path);
  std::string lark = "start: ";
  for (size_t i = 0; i < choices.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!choices[i].is_string()) return std::unexpected(JsonTypeError(choices[i], at, "a string"));
    if (choices[i].get_ref<const std::string&>().empty())
      return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' must not be empty.", at), at);
    lark += (i > 0 ? " | " : "") + choices[i].dump();
  }
  return out->Take(Kind::kLark, std::move(lark), path);
}

Status TakeGrammar(std::string text, std::string path, OnlyOne* out) {
  if (text.contains("::=")) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'{}' is in GBNF or EBNF, which is not read yet; write it in Lark.", path), path);
  }
  return out->Take(Kind::kLark, std::move(text), std::move(path));
}

// vLLM's names of now, and of before.
struct Names {
  std::string_view json, regex, choice, grammar;
};
constexpr Names kNames{"json", "regex", "choice", "grammar"};
constexpr Names kGuidedNames{"guided_json", "guided_regex", "guided_choice", "guided_grammar"};

Status TakeNamed(JsonFields& fields, const Names& names, OnlyOne* out) {
  if (const Json* schema = fields.Find(names.json))
    HR_RETURN_IF_ERROR(TakeSchema(*schema, fields.Path(names.json), out));
  HR_ASSIGN_OR_RETURN(auto expression, fields.String(names.regex, kConstraintBytesMax));
  if (expression) HR_RETURN_IF_ERROR(out->Take(Kind::kRegex, std::move(*expression), fields.Path(names.regex)));
  HR_ASSIGN_OR_RETURN(const Json* choices, fields.Array(names.choice, kChoicesMax));
  if (choices != nullptr) HR_RETURN_IF_ERROR(TakeChoices(*choices, fields.Path(names.choice), out));
  HR_ASSIGN_OR_RETURN(auto lark, fields.String(names.grammar, kConstraintBytesMax));
  if (lark) HR_RETURN_IF_ERROR(TakeGrammar(std::move(*lark), fields.Path(names.grammar), out));
  return {};
}

Status RefuseUnread(const JsonFields& fields) {
  const std::vector<std::string> unread = fields.Unread(1);
  if (unread.empty()) return {};
  const std::string path = fields.Path(unread.front());
  return Fail(ErrorCode::kUnsupported, fmt::format("'{}' would change what is enforced and is not served.", path),
              path);
}

Status ReadStructuredOutputs(JsonFields& fields, OnlyOne* out) {
  HR_ASSIGN_OR_RETURN(const Json* outputs, fields.Object("structured_outputs"));
  if (outputs == nullptr) return {};
  HR_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*outputs, "structured_outputs"));
  HR_RETURN_IF_ERROR(TakeNamed(inner, kNames, out));
  HR_ASSIGN_OR_RETURN(const auto any_object, inner.Bool("json_object"));
  if (any_object.value_or(false))
    HR_RETURN_IF_ERROR(out->Take(Kind::kJsonSchema, std::string(kAnyObjectSchema), inner.Path("json_object")));
  return RefuseUnread(inner);
}

Status ReadResponseFormat(JsonFields& fields, OnlyOne* out) {
  HR_ASSIGN_OR_RETURN(const Json* format, fields.Object("response_format"));
  if (format == nullptr) return {};
  HR_ASSIGN_OR_RETURN(JsonFields inner, JsonFields::Of(*format, "response_format"));
  HR_ASSIGN_OR_RETURN(const auto type,
                      inner.OneOf("type", {"text", "json_object", "json_schema", "grammar", "structural_tag"}));
  if (!type) return Fail(ErrorCode::kInvalidArgument, "'response_format.type' is required.", "response_format.type");
  if (*type == "text") return {};
  if (*type == "json_object") return out->Take(Kind::kJsonSchema, std::string(kAnyObjectSchema), "response_format");
  if (*type != "json_schema") {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("'response_format.type' {} is not supported yet: use json_schema, or "
                            "structured_outputs with json, regex, choice or grammar.",
                            *type),
                "response_format.type");
  }
  HR_ASSIGN_OR_RETURN(const Json* named, inner.Object("json_schema"));
  if (named == nullptr)
    return Fail(ErrorCode::kInvalidArgument, "'response_format.json_schema' is required.",
                "response_format.json_schema");
  HR_ASSIGN_OR_RETURN(JsonFields schema, JsonFields::Of(*named, "response_format.json_schema"));
  HR_ASSIGN_OR_RETURN([[maybe_unused]] const auto name, schema.String("name", 256));
  HR_ASSIGN_OR_RETURN([[maybe_unused]] const auto text, schema.String("description", kConstraintBytesMax));
  HR_ASSIGN_OR_RETURN([[maybe_unused]] const auto strict, schema.Bool("strict"));  // a schema is always enforced
  const Json* body = schema.Find("schema");
  const std::string path = schema.Path("schema");
  return body == nullptr ? out->Take(Kind::kJsonSchema, std::string(kAnyObjectSchema), path)
                         : TakeSchema(*body, path, out);
}

}  // namespace

Status ReadConstraint(JsonFields& fields, Constraint* constraint) {
  OnlyOne one(constraint);
  HR_RETURN_IF_ERROR(ReadResponseFormat(fields, &one));
  HR_RETURN_IF_ERROR(ReadStructuredOutputs(fields, &one));
  return TakeNamed(fields, kGuidedNames, &one);
}

}  // namespace headrace
