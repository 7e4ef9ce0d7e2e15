// Goal: every way to say what an answer must be comes to one grammar of the right kind, at most one of them is taken,
// and what would change the meaning and is not served is refused by name.
#include "api/constraint.h"

#include "api/request_cases.h"

namespace headrace {
namespace {

using Kind = Constraint::Kind;

Constraint Of(const std::string& fields) {
  const GenerationRequest chat = Accepted(ParseChatRequest(ChatBody(fields), {}));
  const GenerationRequest completion = Accepted(ParseCompletionRequest(CompletionBodyWith(fields), {}));
  EXPECT_EQ(chat.constraint.text, completion.constraint.text);
  EXPECT_TRUE(chat.unknown_fields.empty()) << fields;
  return chat.constraint;
}

TEST(ConstraintTest, EveryNameComesToItsKind) {
  const struct {
    const char* fields;
    Kind kind;
    const char* text;
    const char* field;
  } cases[] = {
      {R"("response_format":{"type":"text"})", Kind::kNone, "", ""},
      {R"("response_format":{"type":"json_object"})", Kind::kJsonSchema, R"({"type":"object"})", "response_format"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","strict":true,"schema":{"b":1,"a":2}}})",
       Kind::kJsonSchema, R"({"b":1,"a":2})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})", Kind::kJsonSchema,
       R"({"type":"object"})", "response_format.json_schema.schema"},
      {R"("structured_outputs":{"json":{"type":"null"}})", Kind::kJsonSchema, R"({"type":"null"})",
       "structured_outputs.json"},
      {R"("structured_outputs":{"json_object":true})", Kind::kJsonSchema, R"({"type":"object"})",
       "structured_outputs.json_object"},
      {R"("structured_outputs":{"json_object":false})", Kind::kNone, "", ""},
      {R"("structured_outputs":{"regex":"a+"})", Kind::kRegex, "a+", "structured_outputs.regex"},
      {R"("structured_outputs":{"grammar":"start: \"a\""})", Kind::kLark, "start: \"a\"", "structured_outputs.grammar"},
      {R"("structured_outputs":{})", Kind::kNone, "", ""},
      {R"("guided_json":"{\"type\":\"null\"}")", Kind::kJsonSchema, R"({"type":"null"})", "guided_json"},
      {R"("guided_json":true)", Kind::kJsonSchema, "true", "guided_json"},
      {R"("guided_regex":"a+")", Kind::kRegex, "a+", "guided_regex"},
      {R"("guided_choice":["a","b \"c\"\n"])", Kind::kLark, R"(start: "a" | "b \"c\"\n")", "guided_choice"},
      {R"("guided_grammar":"start: X")", Kind::kLark, "start: X", "guided_grammar"},
      {R"("guided_json":null,"guided_regex":null,"structured_outputs":null,"response_format":null)", Kind::kNone, "",
       ""},
  };
  for (const auto& c : cases) {
    const Constraint got = Of(c.fields);
    EXPECT_EQ(got.kind, c.kind) << c.fields;
    EXPECT_EQ(got.text, c.text) << c.fields;
    EXPECT_EQ(got.field, c.field) << c.fields;
  }
}

TEST(ConstraintTest, ASecondOneIsRefused) {
  for (const auto& [fields, second] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex"},
           {R"("guided_json":{},"guided_choice":["a"])", "guided_choice"},
           {R"("structured_outputs":{"regex":"a","choice":["a"]})", "structured_outputs.choice"}})
    ExpectRefused(ParseChatRequest, ChatBody(fields), second, "send one");
}

TEST(ConstraintTest, WrongShapesAreNamed) {
  const char* cases[][2] = {
      {R"("response_format":{})", "response_format.type"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":3}})", "response_format.json_schema.schema"},
      {R"("response_format":{"type":"json_schema","json_schema":{"strict":"yes"}})",
       "response_format.json_schema.strict"},
      {R"("structured_outputs":{"choice":[]})", "structured_outputs.choice"},
      {R"("guided_choice":["a",1])", "guided_choice[1]"},
      {R"("guided_choice":["a",""])", "guided_choice[1]"},
      {R"("guided_json":[1])", "guided_json"},
      {R"("guided_regex":5)", "guided_regex"}};
  for (const auto& c : cases) ExpectRefused(ParseChatRequest, ChatBody(c[0]), c[1]);
  ExpectRefused(ParseChatRequest, ChatBody(R"("structured_outputs":{"regex":"a","backend":"x"})"),
                "structured_outputs.backend", "not served", ErrorCode::kUnsupported);
  ExpectRefused(ParseChatRequest, ChatBody(R"("guided_grammar":"root ::= x")"), "guided_grammar", "Lark",
                ErrorCode::kUnsupported);
}

TEST(ConstraintTest, LongTextsAreRefused) {
  const std::string longest(kConstraintBytesMax, 'a');
  EXPECT_EQ(Of(R"("guided_regex":")" + longest + "\"").text.size(), kConstraintBytesMax);
  ExpectRefused(ParseChatRequest, ChatBody(R"("guided_regex":")" + longest + "a\""), "guided_regex");
  std::string many = R"("guided_choice":["a")";
  for (size_t i = 0; i < kChoicesMax; ++i) many += ",\"b\"";
  ExpectRefused(ParseChatRequest, ChatBody(many + "]"), "guided_choice");
}

}  // namespace
}  // namespace headrace
