// Goal: a stream has the order and the keys that SDKs rely on (C24-C27, O-03), sends nothing for no text, joins to the
// whole answer, and the hot path does not allocate.
#include "api/stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "json/json.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

const ResponseHead kChat{"chatcmpl-1", 7, "m", "fp", ""};
const ResponseHead kText{"cmpl-1", 7, "m", "fp", ""};
constexpr std::string_view kChatStart =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":"fp","choices":[)";
constexpr std::string_view kTextStart =
    R"(data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"m","system_fingerprint":"fp","choices":[)";

std::vector<Json> Events(std::string_view stream) {
  std::vector<Json> events;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_TRUE(stream.starts_with("data: ") && end != std::string_view::npos) << stream;
    if (end == std::string_view::npos) break;
    auto json = ParseJson(stream.substr(6, end - 6), {});
    EXPECT_TRUE(json.has_value()) << stream;
    if (json) events.push_back(*json);
    stream.remove_prefix(end + 2);
  }
  return events;
}

TEST(ChatChunks, C24OrderAndExactText) {
  const ChatChunkWriter writer(kChat, false);
  const std::string start(kChatStart);
  std::string out;
  writer.AppendRole(out, 0);
  EXPECT_TRUE(writer.AppendText(out, 0, "he\"y"));
  writer.AppendFinish(out, 0, FinishReason::kStop);
  EXPECT_EQ(
      out,
      start +
          R"({"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}]})"
          "\n\n" +
          start +
          R"({"index":0,"delta":{"content":"he\"y"},"logprobs":null,"finish_reason":null}]})"
          "\n\n" +
          start +
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]})"
          "\n\n");
}

TEST(ChatChunks, C25AndO03UsageOnlyWhenAsked) {
  const Usage usage{.prompt_tokens = 3, .completion_tokens = 4};
  std::string with;
  const ChatChunkWriter asked(kChat, true);
  asked.AppendRole(with, 0);
  asked.AppendText(with, 0, "a");
  asked.AppendFinish(with, 0, FinishReason::kLength);
  asked.AppendUsage(with, usage);
  const std::vector<Json> events = Events(with);
  ASSERT_EQ(events.size(), 4u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(events[i].contains("usage") && events[i]["usage"].is_null());
    EXPECT_EQ(events[i]["choices"].size(), 1u);
  }
  EXPECT_TRUE(events[3]["choices"].is_array() && events[3]["choices"].empty());
  EXPECT_EQ(events[3]["usage"]["total_tokens"], 7);
  std::string without;
  const ChatChunkWriter plain(kChat, false);
  plain.AppendRole(without, 0);
  plain.AppendFinish(without, 0, FinishReason::kLength);
  EXPECT_THAT(without, Not(HasSubstr("usage")));
}

TEST(ChatChunks, C26NoChunkWithoutText) {
  const ChatChunkWriter writer(kChat, false);
  const std::vector<TokenLogprob> half{{"", "\xE4", -1.0f, {}}};
  std::string out;
  EXPECT_FALSE(writer.AppendText(out, 0, ""));
  EXPECT_FALSE(writer.AppendText(out, 0, "", &half));
  EXPECT_FALSE(writer.AppendReasoning(out, 0, ""));
  EXPECT_EQ(out, "");
}

TEST(ChatChunks, C11IndexOfEachChoice) {
  const ChatChunkWriter writer(kChat, false);
  std::string out;
  writer.AppendText(out, 127, "x");
  EXPECT_EQ(Events(out)[0]["choices"][0]["index"], 127);
}

TEST(ChatChunks, C14LogprobsInChunksAndAtTheFinish) {
  const ChatChunkWriter writer(kChat, false);
  const std::vector<TokenLogprob> logprobs{{"a", "a", -0.5f, {{"b", "b", -1.0f}}}};
  std::string out;
  writer.AppendText(out, 0, "a", &logprobs);
  writer.AppendFinish(out, 0, FinishReason::kStop, &logprobs);
  for (const Json& event : Events(out)) {
    const Json& written = event["choices"][0]["logprobs"];
    EXPECT_EQ(written["content"][0]["logprob"], -0.5);
    EXPECT_EQ(written["content"][0]["top_logprobs"][0]["token"], "b");
    EXPECT_TRUE(written["refusal"].is_null());
  }
}

TEST(ChatChunks, C5ReasoningUnderBothNames) {
  const ChatChunkWriter writer(kChat, false);
  std::string out;
  EXPECT_TRUE(writer.AppendReasoning(out, 0, "why"));
  const Json delta = Events(out)[0]["choices"][0]["delta"];
  EXPECT_EQ(delta["reasoning"], "why");
  EXPECT_EQ(delta["reasoning_content"], "why");
  EXPECT_FALSE(delta.contains("content"));
}

TEST(ChatChunks, BareJsonFraming) {
  const ChatChunkWriter writer(kChat, true, ChunkFraming::kJson);
  std::string out;
  writer.AppendText(out, 0, "x");
  EXPECT_TRUE(ParseJson(out, {}).has_value());
  out.clear();
  writer.AppendUsage(out, {});
  EXPECT_TRUE(ParseJson(out, {}).has_value());
}

TEST(ChatChunks, TextDoesNotAllocateOnceTheBufferHasGrown) {
  const ChatChunkWriter writer(kChat, true);
  std::string out;
  out.reserve(4096);
  const char* data = out.data();
  for (int i = 0; i < 1000; ++i) {
    out.clear();
    writer.AppendText(out, 3, "some text with \"quotes\" and 你好");
  }
  EXPECT_EQ(out.data(), data);
}

TEST(CompletionChunks, ExactText) {
  CompletionChunkWriter writer(kText, 2, false);
  const std::string start(kTextStart);
  std::string out;
  EXPECT_TRUE(writer.AppendText(out, 1, "a"));
  writer.AppendFinish(out, 1, FinishReason::kLength);
  EXPECT_EQ(out, start +
                     R"({"index":1,"text":"a","logprobs":null,"finish_reason":null}]})"
                     "\n\n" +
                     start +
                     R"({"index":1,"text":"","logprobs":null,"finish_reason":"length"}]})"
                     "\n\n");
}

TEST(CompletionChunks, L3OffsetsContinueForEachChoice) {
  CompletionChunkWriter writer(kText, 2, true);
  const std::vector<TokenLogprob> first{{"né", "né", std::nullopt, {}}};
  const std::vector<TokenLogprob> next{{"b", "b", -1.0f, {}}};
  std::string out;
  EXPECT_FALSE(writer.AppendText(out, 0, "", &first));  // nothing counted either
  writer.AppendText(out, 0, "né", &first);
  writer.AppendText(out, 1, "b", &next);
  writer.AppendText(out, 0, "b", &next);
  writer.AppendUsage(out, {});
  const std::vector<Json> events = Events(out);
  EXPECT_EQ(events[0]["choices"][0]["logprobs"]["text_offset"][0], 0);
  EXPECT_TRUE(events[0]["choices"][0]["logprobs"]["token_logprobs"][0].is_null());
  EXPECT_EQ(events[1]["choices"][0]["logprobs"]["text_offset"][0], 0);
  EXPECT_EQ(events[2]["choices"][0]["logprobs"]["text_offset"][0], 2);
  EXPECT_TRUE(events[3]["choices"].empty());
}

TEST(Stream, DoneIsTheLastEvent) { EXPECT_EQ(kSseDone, "data: [DONE]\n\n"); }

}  // namespace
}  // namespace headrace
