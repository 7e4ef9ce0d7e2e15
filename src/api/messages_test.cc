// Goal: however a client spells its history (C1-C6), templates see one shape; a broken history is a 400 that names the
// message, never a 500 (O-23, O-25).
#include "api/messages.h"

#include "api/request_cases.h"
#include "json/json.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::string Normalised(const std::string& messages) {
  return DumpJson(Accepted(ParseChatRequest(WithMessages(messages), {})).messages);
}

const std::string kCall =
    R"({"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},)"
    R"({"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]})";

TEST(Messages, C1StringsAndTextPartsForEveryRole) {
  for (const std::string role : {"system", "developer", "user", "assistant"}) {
    const std::string shown = role == "developer" ? "system" : role;
    const std::string wanted = R"([{"role":")" + shown + R"(","content":"a\nb"}])";
    EXPECT_EQ(
        Normalised(R"([{"role":")" + role + R"(","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
        wanted);
    EXPECT_EQ(Normalised(R"([{"role":")" + role + R"(","content":"a\nb"}])"), wanted);
  }
  EXPECT_THAT(
      Normalised("[" + kCall + R"(,{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"r"}]}])"),
      HasSubstr(R"({"role":"tool","content":"r","tool_call_id":"c1"})"));
}

TEST(Messages, C2Roles) {
  EXPECT_EQ(Normalised(R"([{"role":"developer","content":"a"}])"), R"([{"role":"system","content":"a"}])");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":"a"},{"role":"robot","content":"a"}])"),
                "messages[1].role", "one of");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"content":"a"}])"), "messages[0].role", "required");
  ExpectRefused(ParseChatRequest, WithMessages(R"(["hi"])"), "messages[0]", "object");
}

TEST(Messages, C3AssistantWithoutContent) {
  for (const char* content : {R"("content":"",)", R"("content":null,)", R"("content":[],)", ""}) {
    EXPECT_EQ(Normalised(R"([{)" + std::string(content) + R"("role":"assistant"}])"),
              R"([{"role":"assistant","content":""}])");
    EXPECT_THAT(
        Normalised(
            R"([{)" + std::string(content) +
            R"("role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}])"),
        HasSubstr(R"("content":"","tool_calls":)"));
  }
  EXPECT_EQ(Normalised(R"([{"role":"assistant","content":null,"tool_calls":[]}])"),
            R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(
      Normalised(
          R"([{"role":"assistant","content":null,"tool_calls":null,"function_call":null,"audio":null,"refusal":null,"annotations":[]}])"),
      R"([{"role":"assistant","content":""}])");
  EXPECT_EQ(Normalised(R"([{"role":"assistant","content":null,"refusal":"no"}])"),
            R"([{"role":"assistant","content":"no"}])");
}

TEST(Messages, O25EmptyContent) {
  EXPECT_EQ(Normalised(R"([{"role":"user","content":""}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(Normalised(R"([{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":null}])"), "messages[0].content",
                "required");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user"}])"), "messages[0].content", "required");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":7}])"), "messages[0].content");
}

TEST(Messages, C4ToolCallsAndTheirResultsInAnyOrder) {
  const std::string out = Normalised(
      "[" + kCall +
      R"(,{"role":"tool","tool_call_id":"c2","content":"2"},{"role":"tool","tool_call_id":"c1","content":"1"}])");
  EXPECT_EQ(
      out,
      R"([{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"x":1}}},)"
      R"({"id":"c2","type":"function","function":{"name":"g","arguments":{}}}]},)"
      R"({"role":"tool","content":"2","tool_call_id":"c2"},{"role":"tool","content":"1","tool_call_id":"c1"}])");
}

TEST(Messages, O23OrphanResultsAndUnknownIds) {
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"tool","tool_call_id":"c1","content":"1"}])"),
                "messages[0].tool_call_id", "earlier tool call");
  ExpectRefused(ParseChatRequest, WithMessages("[" + kCall + R"(,{"role":"tool","tool_call_id":"zz","content":"1"}])"),
                "messages[1].tool_call_id");
  ExpectRefused(ParseChatRequest, WithMessages("[" + kCall + R"(,{"role":"tool","content":"1"}])"),
                "messages[1].tool_call_id", "required");
  ExpectRefused(ParseChatRequest,
                WithMessages(R"([{"role":"user","content":"x","tool_calls":[{"id":"a","function":{"name":"f"}}]}])"),
                "messages[0].tool_calls");
}

std::string CallWith(const std::string& arguments) {
  return R"([{"role":"user","content":"x"},{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":)" +
         arguments + "}}]}]";
}

TEST(Messages, O23ArgumentsWithADocumentedFallback) {
  for (const char* arguments : {R"("")", R"(" ")", R"("null")", "null", R"("{}")", "{}"}) {
    EXPECT_THAT(Normalised(CallWith(arguments)), HasSubstr(R"("arguments":{})")) << arguments;
  }
  EXPECT_THAT(Normalised(CallWith(R"({"x":[1]})")), HasSubstr(R"("arguments":{"x":[1]})"));
  EXPECT_THAT(Normalised(CallWith(R"("{\"b\":1,\"a\":2}")")), HasSubstr(R"("arguments":{"b":1,"a":2})"));  // order kept
}

TEST(Messages, O23MalformedArgumentsNameTheCall) {
  const std::string field = "messages[1].tool_calls[0].function.arguments";
  for (const std::string arguments : {R"("{")", R"("[1]")", R"("1")", "42", "[1]", "true"})
    ExpectRefused(ParseChatRequest, WithMessages(CallWith(arguments)), field);
  ExpectRefused(ParseChatRequest, WithMessages(CallWith("\"" + std::string(1 << 20, 'x') + "\"")), field);
  ExpectRefused(ParseChatRequest, WithMessages(CallWith("\"" + std::string(100'000, '[') + "\"")), field,
                "deeper than 64");
}

TEST(Messages, ToolCallsNeedIdNameAndKind) {
  const auto with = [](const std::string& call) {
    return WithMessages(R"([{"role":"assistant","tool_calls":[)" + call + "]}]");
  };
  ExpectRefused(ParseChatRequest, with(R"({"type":"function","function":{"name":"f"}})"),
                "messages[0].tool_calls[0].id", "required");
  ExpectRefused(ParseChatRequest, with(R"({"id":"a","type":"function"})"), "messages[0].tool_calls[0].function",
                "required");
  ExpectRefused(ParseChatRequest, with(R"({"id":"a","function":{}})"), "messages[0].tool_calls[0].function.name",
                "required");
  ExpectRefused(ParseChatRequest, with(R"({"id":"a","type":"custom","custom":{}})"), "messages[0].tool_calls[0].type",
                "", ErrorCode::kUnsupported);
  ExpectRefused(ParseChatRequest, with("1"), "messages[0].tool_calls[0]");
}

TEST(Messages, C34LegacyFunctionCallsAreTranslated) {
  EXPECT_EQ(
      Normalised(
          R"([{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{\"x\":1}"}},{"role":"function","name":"f","content":"r"}])"),
      R"([{"role":"assistant","content":"","tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","content":"r","name":"f","tool_call_id":"call_0"}])");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"function","name":"f","content":"r"}])"),
                "messages[0].name");
}

TEST(Messages, C5ReasoningUnderBothNames) {
  const std::string wanted = R"([{"role":"assistant","content":"a","reasoning_content":"r","reasoning":"r"}])";
  EXPECT_EQ(Normalised(R"([{"role":"assistant","content":"a","reasoning":"r"}])"), wanted);
  EXPECT_EQ(Normalised(R"([{"role":"assistant","content":"a","reasoning_content":"r"}])"), wanted);
  EXPECT_EQ(Normalised(R"([{"role":"assistant","content":"a","reasoning_content":"r","reasoning":"s"}])"), wanted);
}

TEST(Messages, C6OtherModalitiesAreNamed) {
  const char* cases[][2] = {{R"({"type":"image_url","image_url":{"url":"data:,"}})", "images"},
                            {R"({"type":"image_url","image_url":"http://x"})", "images"},
                            {R"({"type":"input_audio","input_audio":{}})", "audio"},
                            {R"({"type":"file","file":{}})", "files"},
                            {R"({"type":"video_url","video_url":{}})", "video"}};
  for (const auto& c : cases) {
    ExpectRefused(ParseChatRequest,
                  WithMessages(R"([{"role":"user","content":[{"type":"text","text":"x"},)" + std::string(c[0]) + "]}]"),
                  "messages[0].content[1].type", c[1], ErrorCode::kUnsupported);
  }
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":[{"type":"hologram"}]}])"),
                "messages[0].content[0].type", "must be text");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":[{"type":"text"}]}])"),
                "messages[0].content[0].text", "required");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":[{"text":"x"}]}])"),
                "messages[0].content[0].type", "required");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":["x"]}])"), "messages[0].content[0]");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"assistant","audio":{"id":"x"}}])"), "messages[0].audio", "",
                ErrorCode::kUnsupported);
}

TEST(Messages, RefusalPartsAndNames) {
  EXPECT_EQ(Normalised(R"([{"role":"assistant","name":"bob","content":[{"type":"refusal","refusal":"no"}]}])"),
            R"([{"role":"assistant","content":"no","name":"bob"}])");
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":[{"type":"refusal","refusal":"no"}]}])"),
                "messages[0].content[0].type");
}

}  // namespace
}  // namespace headrace
