// Goal: every maximum of ApiLimits has an error that names the field and the limit, and giant counts are refused fast
// (O-40, T17).
#include <chrono>

#include "api/request_cases.h"
#include "api/tokenize.h"

namespace headrace {
namespace {

std::string Repeated(const std::string& item, size_t count) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) out += (i > 0 ? "," : "") + item;
  return out + "]";
}
std::string Object(size_t count, const std::string& key_prefix, const std::string& value) {
  std::string out = "{";
  for (size_t i = 0; i < count; ++i)
    out.append(i > 0 ? ",\"" : "\"").append(key_prefix).append(std::to_string(i)).append("\":").append(value);
  return out + "}";
}
std::string Quoted(size_t bytes) { return "\"" + std::string(bytes, 'x') + "\""; }

// Largest allowed passes, one more is refused at `field` with `limit` in the message.
template <typename Parse>
void ExpectLimit(Parse parse, const std::string& largest, const std::string& above, const std::string& field,
                 const std::string& limit, const ApiLimits& limits) {
  const auto request = parse(largest, limits);
  EXPECT_TRUE(request.has_value()) << field << ": " << request.error().message;
  ExpectRefused(parse, above, field, limit, ErrorCode::kInvalidArgument, limits);
}

TEST(Limits, T17BodyBytes) {
  ApiLimits limits;
  limits.body_bytes_max = ChatBody().size();
  EXPECT_TRUE(ParseChatRequest(ChatBody(), limits).has_value());
  ExpectRefused(ParseChatRequest, ChatBody() + " ", "", std::to_string(limits.body_bytes_max) + " bytes",
                ErrorCode::kTooLarge, limits);
}

TEST(Limits, DepthAndNodes) {
  ApiLimits limits;
  limits.depth_max = 3;
  EXPECT_TRUE(ParseChatRequest(ChatBody(), limits).has_value());
  ExpectRefused(ParseChatRequest, ChatBody(R"("foo":[[[1]]])"), "foo[0][0]", "deeper than 3",
                ErrorCode::kInvalidArgument, limits);
  limits = {};
  limits.nodes_max = 16;
  EXPECT_TRUE(ParseChatRequest(ChatBody(), limits).has_value());
  ExpectRefused(ParseChatRequest, ChatBody("\"foo\":" + Repeated("1", 16)), "foo[9]", "more than 16 values",
                ErrorCode::kInvalidArgument, limits);
}

TEST(Limits, ArgumentsCountAgainstTheNodes) {
  ApiLimits limits;
  limits.nodes_max = 40;
  const std::string call = R"({"id":"a","function":{"name":"f","arguments":"[)" + Repeated("1", 15).substr(1) + "\"}}";
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"assistant","tool_calls":[)" + call + "," + call + "]}]"),
                "messages[0].tool_calls[0].function.arguments", "not an object", ErrorCode::kInvalidArgument, limits);
  const std::string wide = R"({"id":"a","function":{"name":"f","arguments":"{\"x\":)" + Repeated("1", 15) + "}\"}}";
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"assistant","tool_calls":[)" + wide + "," + wide + "]}]"),
                "messages[0].tool_calls[1].function.arguments", "values", ErrorCode::kInvalidArgument, limits);
}

TEST(Limits, Fields) {
  ApiLimits limits;
  limits.fields_max = 4;
  ExpectLimit(ParseChatRequest, ChatBody(R"("a":1,"b":2)"), ChatBody(R"("a":1,"b":2,"c":3)"), "", "limit is 4", limits);
  ExpectRefused(ParseChatRequest, WithMessages(R"([{"role":"user","content":"x","a":1,"b":1,"c":1}])"), "messages[0]",
                "limit is 4", ErrorCode::kInvalidArgument, limits);
}

TEST(Limits, UnknownFieldsAreReportedUpToTheLimit) {
  ApiLimits limits;
  limits.unknown_fields_max = 3;
  EXPECT_EQ(Accepted(ParseChatRequest(ChatBody(R"("a":1,"b":2,"c":3,"d":4)"), limits)).unknown_fields.size(), 3u);
}

TEST(Limits, Names) {
  const ApiLimits limits;
  for (const char* field : {"user", "prompt_cache_key", "cache_salt"}) {
    const std::string key = "\"" + std::string(field) + "\":";
    ExpectLimit(ParseChatRequest, ChatBody(key + Quoted(limits.name_bytes_max)),
                ChatBody(key + Quoted(limits.name_bytes_max + 1)), field, "limit is 256", limits);
  }
  ExpectRefused(ParseChatRequest, R"({"model":)" + Quoted(257) + "}", "model", "limit is 256");
  ExpectLimit(ParseChatRequest, ChatBody("\"safety_identifier\":" + Quoted(64)),
              ChatBody("\"safety_identifier\":" + Quoted(65)), "safety_identifier", "limit is 64", limits);
}

TEST(Limits, C32Metadata) {
  const ApiLimits limits;
  ExpectLimit(ParseChatRequest, ChatBody("\"metadata\":" + Object(16, "k", "\"v\"")),
              ChatBody("\"metadata\":" + Object(17, "k", "\"v\"")), "metadata", "limit is 16", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"metadata\":{" + Quoted(64) + ":\"\"}"),
              ChatBody("\"metadata\":{" + Quoted(65) + ":\"\"}"), "metadata", "limit is 64", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"metadata\":{\"k\":" + Quoted(512) + "}"),
              ChatBody("\"metadata\":{\"k\":" + Quoted(513) + "}"), "metadata.k", "limit is 512", limits);
}

TEST(Limits, MessagesPartsAndCalls) {
  ApiLimits limits;
  limits.messages_max = 3;
  limits.parts_max = 2;
  limits.tool_calls_max = 2;
  const std::string user = R"({"role":"user","content":"x"})";
  ExpectLimit(ParseChatRequest, WithMessages(Repeated(user, 3)), WithMessages(Repeated(user, 4)), "messages",
              "limit is 3", limits);
  const auto parts = [](size_t n) {
    return WithMessages(R"([{"role":"user","content":)" + Repeated(R"({"type":"text","text":"x"})", n) + "}]");
  };
  ExpectLimit(ParseChatRequest, parts(2), parts(3), "messages[0].content", "limit is 2", limits);
  const auto calls = [](size_t n) {
    return WithMessages(R"([{"role":"assistant","tool_calls":)" + Repeated(R"({"id":"a","function":{"name":"f"}})", n) +
                        "}]");
  };
  ExpectLimit(ParseChatRequest, calls(2), calls(3), "messages[0].tool_calls", "limit is 2", limits);
}

TEST(Limits, Tools) {
  const auto tools = [](size_t n) { return ChatBody(R"("tool_choice":"none","tools":)" + Repeated("{}", n)); };
  ExpectLimit(ParseChatRequest, tools(128), tools(129), "tools", "limit is 128", {});
}

TEST(Limits, CountsOfOneRequest) {
  const ApiLimits limits;
  ExpectLimit(ParseChatRequest, ChatBody(R"("n":128)"), ChatBody(R"("n":129)"), "n", "1 to 128", limits);
  ExpectLimit(ParseChatRequest, ChatBody(R"("logprobs":true,"top_logprobs":20)"),
              ChatBody(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "0 to 20", limits);
  ExpectLimit(ParseCompletionRequest, CompletionBodyWith(R"("n":128,"best_of":128)"),
              CompletionBodyWith(R"("n":128,"best_of":129)"), "best_of", "0 to 128", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"stop\":" + Repeated("\"s\"", 64)),
              ChatBody("\"stop\":" + Repeated("\"s\"", 65)), "stop", "limit is 64", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"stop\":" + Quoted(1024)), ChatBody("\"stop\":" + Quoted(1025)), "stop",
              "limit is 1024", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"stop_token_ids\":" + Repeated("1", 256)),
              ChatBody("\"stop_token_ids\":" + Repeated("1", 257)), "stop_token_ids", "limit is 256", limits);
  ExpectLimit(ParseChatRequest, ChatBody("\"logit_bias\":" + Object(1024, "", "1")),
              ChatBody("\"logit_bias\":" + Object(1025, "", "1")), "logit_bias", "limit is 1024", limits);
}

TEST(Limits, StopStringsTogether) {
  const ApiLimits limits;
  const auto stops = [](size_t n, size_t bytes) { return ChatBody("\"stop\":" + Repeated(Quoted(bytes), n)); };
  ExpectLimit(ParseChatRequest, stops(64, 64), stops(64, 65), "stop", "4160 bytes in all; the limit is 4096", limits);
  ExpectRefused(ParseChatRequest, stops(5, 1024), "stop", "Send fewer or shorter stop strings");
}

TEST(Limits, Modalities) {
  ExpectLimit(ParseChatRequest, ChatBody("\"modalities\":" + Repeated("\"text\"", 8)),
              ChatBody("\"modalities\":" + Repeated("\"text\"", 9)), "modalities", "limit is 8", {});
}

TEST(Limits, PromptsAndChoices) {
  const auto prompts = [](size_t n, const char* more = "") {
    return R"({"model":"m","prompt":)" + Repeated("\"p\"", n) + more + "}";
  };
  ExpectLimit(ParseCompletionRequest, prompts(1024), prompts(1025), "prompt", "limit is 1024", {});
  ExpectLimit(ParseCompletionRequest, prompts(8, R"(,"n":128)"), prompts(9, R"(,"n":128)"), "n",
              "more than 1024 choices", {});
}

TEST(Limits, TokenizeUsesThemToo) {
  ApiLimits limits;
  limits.body_bytes_max = 10;
  ExpectRefused(ParseTokenizeRequest, R"({"prompt":"xxxxx"})", "", "10 bytes", ErrorCode::kTooLarge, limits);
  ExpectRefused(ParseDetokenizeRequest, R"({"tokens":[1,2,3]})", "", "10 bytes", ErrorCode::kTooLarge, limits);
}

TEST(Limits, O40GiantCountsAreRefusedFast) {
  const std::string giants[] = {
      ChatBody(R"("n":1000000)"),
      ChatBody(R"("logprobs":true,"top_logprobs":1000000)"),
      ChatBody("\"stop\":" + Repeated("\"stop\"", 100'000)),
      ChatBody("\"logit_bias\":" + Object(100'000, "", "1")),
      ChatBody("\"tools\":" + Repeated("{}", 10'000)),
      R"({"model":"m","messages":)" + Object(100'000, "x", "1") + "}",
      WithMessages(Repeated("{}", 100'000)),
      "{\"model\":\"m\"," + Object(100'000, "x", "1").substr(1),
      std::string(1'000'000, '['),
  };
  for (const std::string& body : giants) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(ParseChatRequest(body, {}).has_value());
    // 200 ms is the promise; sanitizers are ten times slower.
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << body.substr(0, 80);
  }
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("best_of":1000000000)"), "best_of", "128");
  ExpectRefused(ParseCompletionRequest, R"({"model":"m","prompt":)" + Repeated("\"p\"", 100'000) + "}", "prompt",
                "1024");
}

}  // namespace
}  // namespace headrace
