// Goal: what we write satisfies OpenAI's published API description: every required key, every type and every enum of
// the schemas for answers, chunks, models and errors (C33). Skipped, saying so, where the description is not at hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "api/error.h"
#include "api/models.h"
#include "api/response.h"
#include "api/stream.h"
#include "base/file.h"
#include "json/json.h"

namespace headrace {
namespace {

// As much of JSON Schema as these schemas use: $ref, allOf, anyOf, oneOf, type, nullable, enum, required, properties,
// items, additionalProperties as a schema.
class SchemaChecker {
 public:
  explicit SchemaChecker(const Json& root) : root_(root) {}

  // "" or what is wrong.
  std::string Check(const Json& value, const Json& schema, const std::string& path) const {
    if (value.is_null() && schema.value("nullable", false)) return "";
    if (schema.contains("$ref")) return Check(value, Resolve(schema["$ref"].get<std::string>()), path);
    for (const char* any : {"anyOf", "oneOf"}) {
      if (schema.contains(any) && !MatchesOne(value, schema[any], path)) return path + ": no alternative of " + any;
    }
    if (schema.contains("allOf")) {
      for (const Json& part : schema["allOf"]) {
        if (std::string wrong = Check(value, part, path); !wrong.empty()) return wrong;
      }
    }
    if (schema.contains("type") && !HasType(value, schema["type"].get<std::string>()))
      return path + ": not " + schema["type"].get<std::string>();
    if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
      return path + ": not in enum";
    if (value.is_object()) return CheckObject(value, schema, path);
    if (value.is_array() && schema.contains("items")) {
      for (size_t i = 0; i < value.size(); ++i) {
        if (std::string wrong = Check(value[i], schema["items"], path + "[" + std::to_string(i) + "]"); !wrong.empty())
          return wrong;
      }
    }
    return "";
  }

 private:
  std::string CheckObject(const Json& value, const Json& schema, const std::string& path) const {
    if (schema.contains("required")) {
      for (const Json& key : schema["required"]) {
        if (!value.contains(key.get<std::string>())) return path + ": lacks " + key.get<std::string>();
      }
    }
    for (const auto& item : value.items()) {
      const Json* property = nullptr;
      if (schema.contains("properties") && schema["properties"].contains(item.key())) {
        property = &schema["properties"][item.key()];
      } else if (schema.contains("additionalProperties") && schema["additionalProperties"].is_object()) {
        property = &schema["additionalProperties"];
      }
      if (property == nullptr) continue;
      if (std::string wrong = Check(item.value(), *property, path + "." + item.key()); !wrong.empty()) return wrong;
    }
    return "";
  }
  bool MatchesOne(const Json& value, const Json& schemas, const std::string& path) const {
    for (const Json& schema : schemas) {
      if (Check(value, schema, path).empty()) return true;
    }
    return false;
  }
  static bool HasType(const Json& value, const std::string& type) {
    if (type == "null") return value.is_null();
    if (type == "boolean") return value.is_boolean();
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    if (type == "string") return value.is_string();
    if (type == "array") return value.is_array();
    return value.is_object();
  }
  const Json& Resolve(const std::string& reference) const { return root_.at(Json::json_pointer(reference.substr(1))); }

  const Json& root_;
};

class ApiDescription : public testing::Test {
 protected:
  void SetUp() override {
    auto text = ReadWholeFile(HEADRACE_SOURCE_DIR "/../shared/data/openai/openapi.json", 16u << 20);
    if (!text) {
      GTEST_SKIP() << "no ../shared/data/openai/openapi.json beside the source: shapes are not compared with it";
    }
    auto parsed = ParseJson(*text, {.bytes_max = 16u << 20, .depth_max = 128, .nodes_max = 4u << 20});
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    description_ = std::move(*parsed);
  }
  void ExpectValid(const std::string& text, const std::string& schema) {
    auto value = ParseJson(text, {});
    ASSERT_TRUE(value.has_value()) << text;
    ASSERT_TRUE(description_["components"]["schemas"].contains(schema));
    EXPECT_EQ(SchemaChecker(description_).Check(*value, description_["components"]["schemas"][schema], schema), "")
        << text;
  }
  Json description_;
};

const ResponseHead kHead{"id-1", 1700000000, "m", "fp", "default"};
const std::vector<TokenLogprob> kLogprobs{{"a", "a", -0.5f, {{"b", "b", -1.0f}}}, {"\xE4", "\xE4", -1e30f, {}}};
const Usage kUsage{5, 6, 1, 2, 3, 4, 5};

TEST_F(ApiDescription, ChatAnswers) {
  for (const bool with : {false, true}) {
    ChatChoice choice{0, "hi", with ? "why" : "", FinishReason::kStop, std::nullopt};
    if (with) choice.logprobs = kLogprobs;
    ExpectValid(ChatCompletionBody(kHead, std::span(&choice, 1), kUsage), "CreateChatCompletionResponse");
  }
}

TEST_F(ApiDescription, ChatChunks) {
  for (const bool include_usage : {false, true}) {
    const ChatChunkWriter writer(kHead, include_usage, ChunkFraming::kJson);
    std::string role, text, reasoning, finish, usage;
    writer.AppendRole(role, 0);
    writer.AppendText(text, 0, "x", &kLogprobs);
    writer.AppendReasoning(reasoning, 0, "x");
    writer.AppendFinish(finish, 0, FinishReason::kLength);
    if (include_usage) writer.AppendUsage(usage, kUsage);
    for (const std::string& chunk : {role, text, reasoning, finish, usage}) {
      if (!chunk.empty()) ExpectValid(chunk, "CreateChatCompletionStreamResponse");
    }
  }
}

TEST_F(ApiDescription, Completions) {
  for (const bool with : {false, true}) {
    CompletionChoice choice{0, "hi", FinishReason::kLength, std::nullopt};
    if (with) choice.logprobs = kLogprobs;
    ExpectValid(CompletionBody(kHead, std::span(&choice, 1), kUsage), "CreateCompletionResponse");
  }
}

// The description has one schema for both and its finish_reason is not nullable, so of the chunks only the last fits
// it.
TEST_F(ApiDescription, CompletionFinishChunk) {
  CompletionChunkWriter writer(kHead, 1, false, ChunkFraming::kJson);
  std::string finish;
  writer.AppendFinish(finish, 0, FinishReason::kStop);
  ExpectValid(finish, "CreateCompletionResponse");
}

TEST_F(ApiDescription, ModelsAndErrors) {
  const ModelCard cards[] = {{.id = "a", .created = 1, .max_model_len = 5, .n_ctx_train = 7}, {.id = "b"}};
  ExpectValid(ModelsListBody(cards), "ListModelsResponse");
  ExpectValid(ModelBody(cards[0]), "Model");
  ExpectValid(ToOpenAiError({ErrorCode::kInvalidArgument, "m", "", 0}).body, "ErrorResponse");
  ExpectValid(StreamErrorEvent({ErrorCode::kInternal, "m", "f", 0}), "ErrorResponse");
}

TEST_F(ApiDescription, TheCheckerFindsWhatIsMissing) {
  const SchemaChecker checker(description_);
  const Json& schema = description_["components"]["schemas"]["CreateChatCompletionResponse"];
  const ChatChoice choice{0, "hi", "", FinishReason::kStop, std::nullopt};
  Json body = *ParseJson(ChatCompletionBody(kHead, std::span(&choice, 1), kUsage), {});
  body["choices"][0].erase("logprobs");
  EXPECT_NE(checker.Check(body, schema, "x"), "");
  body = *ParseJson(ChatCompletionBody(kHead, std::span(&choice, 1), kUsage), {});
  body["choices"][0]["finish_reason"] = "bored";
  EXPECT_NE(checker.Check(body, schema, "x"), "");
  body["choices"][0]["finish_reason"] = "stop";
  body["choices"][0]["message"].erase("refusal");
  EXPECT_NE(checker.Check(body, schema, "x"), "");
}

}  // namespace
}  // namespace headrace
