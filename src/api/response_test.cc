// Goal: whole answers hold every key that strict clients check (C5, C14, C28, C33, L3), with exact bytes and finite
// numbers.
#include "api/response.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "json/json.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

const ResponseHead kHead{"chatcmpl-1", 1700000000, "m\"odel", "fp_1", ""};

Json Parsed(const std::string& text) {
  auto parsed = ParseJson(text, {});
  EXPECT_TRUE(parsed.has_value()) << text;
  return parsed ? *parsed : Json();
}

TokenLogprob Token(std::string token, std::string bytes, std::optional<float> logprob) {
  return {std::move(token), std::move(bytes), logprob, {}};
}

TEST(ChatCompletionBody, C33ExactShape) {
  const ChatChoice choice{0, "hi \"you\"\n", "", FinishReason::kStop, std::nullopt};
  EXPECT_EQ(
      ChatCompletionBody(kHead, std::span(&choice, 1), {.prompt_tokens = 5, .completion_tokens = 2}),
      R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m\"odel","system_fingerprint":"fp_1",)"
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"hi \"you\"\n","refusal":null},"logprobs":null,"finish_reason":"stop"}],)"
      R"("usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},)"
      R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})");
}

TEST(ChatCompletionBody, C5ReasoningUnderBothNames) {
  const ChatChoice choice{0, "a", "why", FinishReason::kLength, std::nullopt};
  const Json message = Parsed(ChatCompletionBody(kHead, std::span(&choice, 1), {}))["choices"][0]["message"];
  EXPECT_EQ(message["reasoning"], "why");
  EXPECT_EQ(message["reasoning_content"], "why");
  EXPECT_EQ(message["content"], "a");
}

TEST(ChatCompletionBody, C11ChoicesKeepTheirIndex) {
  const ChatChoice choices[] = {{0, "a", "", FinishReason::kStop, {}}, {1, "b", "", FinishReason::kLength, {}}};
  const Json body = Parsed(ChatCompletionBody(kHead, choices, {}));
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
}

TEST(ChatCompletionBody, C28Usage) {
  const Json usage = Parsed(ChatCompletionBody(kHead, {}, {100, 20, 64, 30, 7, 3, 2}))["usage"];
  EXPECT_EQ(usage["total_tokens"], 120);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 64);
  EXPECT_EQ(usage["prompt_tokens_details"]["cache_write_tokens"], 30);
  EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], 7);
  EXPECT_EQ(usage["completion_tokens_details"]["accepted_prediction_tokens"], 3);
  EXPECT_EQ(usage["completion_tokens_details"]["rejected_prediction_tokens"], 2);
}

TEST(ChatCompletionBody, C14LogprobsWithExactBytes) {
  // Two tokens share one character: neither is UTF-8 alone, their bytes joined are.
  ChatChoice choice{0, "你", "", FinishReason::kStop,
                    std::vector<TokenLogprob>{Token("\xE4\xBD", "\xE4\xBD", -0.5f), Token("\xA0", "\xA0", -1.25f)}};
  (*choice.logprobs)[0].top = {{"x", "x", -0.1f}, {"y", "y", -std::numeric_limits<float>::infinity()}};
  const std::string text = ChatCompletionBody(kHead, std::span(&choice, 1), {});
  const Json logprobs = Parsed(text)["choices"][0]["logprobs"];
  EXPECT_TRUE(logprobs["refusal"].is_null());
  std::string joined;
  for (const Json& token : logprobs["content"]) {
    for (const Json& byte : token["bytes"]) joined += static_cast<char>(byte.get<int>());
  }
  EXPECT_EQ(joined, choice.content);
  EXPECT_EQ(logprobs["content"][0]["logprob"], -0.5);
  EXPECT_EQ(logprobs["content"][0]["top_logprobs"][0]["token"], "x");
  EXPECT_EQ(logprobs["content"][0]["top_logprobs"][1]["logprob"], -9999.0);
  EXPECT_TRUE(logprobs["content"][1]["top_logprobs"].is_array());
}

TEST(ChatCompletionBody, C14LogprobsAreFinite) {
  for (const float bad :
       {std::nanf(""), -std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(), -1e30f}) {
    const ChatChoice choice{0, "a", "", FinishReason::kStop, std::vector<TokenLogprob>{Token("a", "a", bad)}};
    EXPECT_EQ(
        Parsed(ChatCompletionBody(kHead, std::span(&choice, 1), {}))["choices"][0]["logprobs"]["content"][0]["logprob"],
        -9999.0);
  }
}

TEST(ChatCompletionBody, BytesThatAreNotUtf8StillMakeJson) {
  const ChatChoice choice{0, "a\xFF", "", FinishReason::kStop, std::nullopt};
  EXPECT_EQ(Parsed(ChatCompletionBody(kHead, std::span(&choice, 1), {}))["choices"][0]["message"]["content"],
            "a\uFFFD");
}

TEST(ChatCompletionBody, ServiceTierOnlyWhenKnown) {
  ResponseHead head = kHead;
  EXPECT_THAT(ChatCompletionBody(head, {}, {}), Not(HasSubstr("service_tier")));
  head.service_tier = "default";
  EXPECT_EQ(Parsed(ChatCompletionBody(head, {}, {}))["service_tier"], "default");
}

TEST(CompletionBody, L3ExactShapeWithEcho) {
  CompletionChoice choice{
      0, "né\nw", FinishReason::kLength,
      std::vector<TokenLogprob>{Token("n", "n", std::nullopt), Token("é", "é", -0.5f), Token("\nw", "\nw", -2.0f)}};
  (*choice.logprobs)[1].top = {{"x", "x", -0.25f}};
  (*choice.logprobs)[2].top = {{"\nw", "\nw", -2.0f}, {"\nw", "\nw ", -3.0f}};
  EXPECT_EQ(
      CompletionBody({"cmpl-1", 7, "m", "fp", ""}, std::span(&choice, 1), {.prompt_tokens = 2, .completion_tokens = 1}),
      R"({"id":"cmpl-1","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp","choices":[{"index":0,"text":"né\nw",)"
      R"("logprobs":{"tokens":["n","é","\nw"],"token_logprobs":[null,-0.5,-2],"top_logprobs":[null,{"x":-0.25,"é":-0.5},{"\nw":-2}],"text_offset":[0,1,2]},)"
      R"("finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3,)"
      R"("prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},)"
      R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}})");
}

TEST(CompletionBody, L3OffsetsCountCharactersAcrossSplitOnes) {
  const CompletionChoice choice{
      0, "你a", FinishReason::kStop,
      std::vector<TokenLogprob>{Token("", "\xE4\xBD", -1.0f), Token("", "\xA0", -1.0f), Token("a", "a", -1.0f)}};
  EXPECT_EQ(DumpJson(Parsed(CompletionBody(kHead, std::span(&choice, 1), {}))["choices"][0]["logprobs"]["text_offset"]),
            "[0,1,1]");
}

TEST(CompletionBody, LogprobsNullWhenNotAsked) {
  const CompletionChoice choice{3, "a", FinishReason::kStop, std::nullopt};
  const Json body = Parsed(CompletionBody(kHead, std::span(&choice, 1), {}));
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["choices"][0]["index"], 3);
}

}  // namespace
}  // namespace headrace
