// Goal: Mooncake's and Azure's forms are read as they are published; what is cut, out of order, absurd or something
// else is an error that names the line and what to do, in bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>

#include "trace/trace_reader.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string TestData(const std::string& name) { return std::string(HEADRACE_SOURCE_DIR "/src/trace/testdata/") + name; }

Result<Trace> LoadText(const std::string& text, const TraceLimits& limits = {}) {
  const auto source = SourceFromMemory(std::as_bytes(std::span(text)), "t");
  return LoadTrace(*source, limits);
}

std::string ErrorOf(const std::string& text, const TraceLimits& limits = {}) {
  const Result<Trace> trace = LoadText(text, limits);
  return trace ? "read" : trace.error().message;
}

TEST(TextTraces, Mooncake) {
  const auto file = OpenFile(TestData("mooncake.jsonl"));
  ASSERT_TRUE(file) << file.error().message;
  const Result<Trace> trace = LoadTrace(**file);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 3u);
  const RecordedRequest& last = trace->requests[2];
  EXPECT_EQ(last.arrival_us, 3'000'000);
  EXPECT_EQ(last.prompt_tokens, 2100);
  EXPECT_EQ(last.output_tokens, 512);
  EXPECT_EQ(last.block_tokens, 512);
  EXPECT_EQ(last.blocks.size(), 5u);
  EXPECT_EQ(last.blocks[1].low, 1u);
}

TEST(TextTraces, CoarseNamesBecomeTheCachesOwn) {
  RecordedRequest a{.prompt_tokens = 1200, .block_tokens = 512, .blocks = {{0, 7}, {0, 8}, {0, 9}}};
  RecordedRequest b{.prompt_tokens = 1100, .block_tokens = 512, .blocks = {{0, 7}, {0, 8}, {0, 10}}};
  NameBySmallBlocks(&a);
  NameBySmallBlocks(&b);
  EXPECT_EQ(a.block_tokens, 64);
  ASSERT_EQ(a.blocks.size(), 19u) << "1,200 tokens, the last block in part";
  ASSERT_EQ(b.blocks.size(), 18u);
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(a.blocks[i], b.blocks[i]);
  for (size_t i = 16; i < 18; ++i) EXPECT_FALSE(a.blocks[i] == b.blocks[i]);
  EXPECT_FALSE(a.blocks[0] == a.blocks[1]);
  EXPECT_TRUE(CheckRecorded(a));
}

TEST(TextTraces, Azure) {
  const auto file = OpenFile(TestData("azure.csv"));
  ASSERT_TRUE(file) << file.error().message;
  const Result<Trace> trace = LoadTrace(**file);
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 3u);
  EXPECT_EQ(trace->requests[0].prompt_tokens, 4808);
  EXPECT_EQ(trace->requests[1].arrival_us, 250'000) << "over the year's end";
  EXPECT_EQ(trace->requests[2].arrival_us, 1'100'000);
  EXPECT_EQ(trace->requests[2].output_tokens, 0);
  const std::string later = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2024-05-10 00:00:00.009930+00:00,5,6\r\n";
  ASSERT_TRUE(LoadText(later)) << ErrorOf(later);
}

TEST(TextTraces, BadLinesAreNamedWithARemedy) {
  const std::string good = R"({"timestamp": 9, "input_length": 5, "output_length": 6, "hash_ids": [1]})";
  const std::string csv = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,5,6\n";
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"hello", {"t is no trace", "Mooncake"}},
      {good + "\n\n" + R"({"timestamp": 10, "input_le)", {"t, line 3"}},
      {good + "\n" + R"({"timestamp": 10, "input_length": 5})", {"line 2", "output_length", "removed"}},
      {good + "\n" + R"({"timestamp": 8, "input_length": 5, "output_length": 6})", {"line 2", "timestamp 8", "sort"}},
      {R"({"timestamp": -1, "input_length": 5, "output_length": 6})", {"line 1", "timestamp"}},
      {R"({"timestamp": 1e17, "input_length": 5, "output_length": 6})", {"line 1", "timestamp"}},
      {R"({"timestamp": 1, "input_length": 0, "output_length": 6})", {"line 1", "input_length"}},
      {R"({"timestamp": 1, "input_length": 1000000000, "output_length": 6})", {"line 1", "input_length"}},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 1e99})", {"line 1", "output_length"}},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [1, 2]})", {"line 1", "block names"}},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [-3]})", {"line 1", "hash_ids"}},
      {R"({"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [[]]})", {"line 1", "hash_ids"}},
      {"TIMESTAMP;ContextTokens\n", {"line 1", "TIMESTAMP,ContextTokens,GeneratedTokens"}},
      {csv + "2023-11-16 18:17:03.96,5,6\n", {"line 3", "sort"}},
      {csv + "2023-11-16 18:17:04,5", {"line 3", "cut"}},
      {csv + "2023-13-16 18:17:04,5,6", {"line 3", "2023-11-16 18:17:03.9799600"}},
      {csv + "2023-11-16 18:17:04,-5,6", {"line 3"}},
      {csv + "2023-11-16 18:17:04,5,99999999999999999999", {"line 3"}},
      {csv + "2023-11-16 18:17:04,999999999,6", {"line 3", "prompt tokens"}},
      {csv + "2023-11-16 18:17:04,0,6", {"line 3", "prompt tokens is 0"}},
      {csv + "9999-11-16 18:17:04,5,6", {"line 3", "arrival"}},
  };
  for (const auto& [text, wanted] : cases) {
    for (const std::string& part : wanted) EXPECT_THAT(ErrorOf(text), HasSubstr(part)) << text;
  }
  EXPECT_TRUE(LoadText(csv.substr(0, csv.find('\n')))) << "a header alone is an empty trace";
}

TEST(TextTraces, LongLinesAndManyRequestsAreRefused) {
  EXPECT_THAT(ErrorOf("{" + std::string(kTraceLineBytesMax + 100'000, ' ') + "}"),
              AllOf(HasSubstr("line 1"), HasSubstr("1048576 bytes")));
  std::string many, names = R"({"timestamp": 1, "input_length": 4000000, "output_length": 6, "hash_ids": [0)";
  for (int i = 0; i < 11; ++i)
    many += R"({"timestamp": 1, "input_length": 5, "output_length": 6, "hash_ids": [1]})"
            "\n";
  EXPECT_THAT(ErrorOf(many, {.requests_max = 10}), HasSubstr("more than 10 requests"));
  EXPECT_THAT(ErrorOf(many, {.blocks_max = 10}), HasSubstr("10 block names"));
  for (size_t i = 0; i < kTraceRequestBlocksMax; ++i) names += ",1";
  EXPECT_THAT(ErrorOf(names + "]}"), HasSubstr("line 1"));
}

TEST(TextTraces, PublishedTracesAreReadWhole) {
  const std::filesystem::path folder = std::filesystem::path(HEADRACE_SOURCE_DIR) / ".." / "shared" / "data" / "traces";
  const char* given = std::getenv("HEADRACE_TRACES");
  const std::filesystem::path traces = given != nullptr ? std::filesystem::path(given) : folder;
  if (!std::filesystem::exists(traces)) GTEST_SKIP() << "no traces: set HEADRACE_TRACES to their folder";
  const std::pair<const char*, size_t> files[] = {{"mooncake_conversation.jsonl", 12'031},
                                                  {"mooncake_synthetic.jsonl", 3993},
                                                  {"azure_2023_code.csv", 8819},
                                                  {"azure_2023_conversation.csv", 19'366}};
  for (const auto& [name, count] : files) {
    const auto file = OpenFile((traces / name).string());
    ASSERT_TRUE(file) << file.error().message;
    const Result<Trace> trace = LoadTrace(**file);
    ASSERT_TRUE(trace) << trace.error().message;
    EXPECT_EQ(trace->requests.size(), count) << name;
    int64_t prompt = 0, output = 0;
    for (const RecordedRequest& r : trace->requests) {
      prompt += r.prompt_tokens;
      output += r.output_tokens;
    }
    std::printf("%s: %zu requests in %.0f s, %.0f prompt and %.0f output tokens each\n", name, trace->requests.size(),
                static_cast<double>(trace->requests.back().arrival_us) / 1e6,
                static_cast<double>(prompt) / static_cast<double>(trace->requests.size()),
                static_cast<double>(output) / static_cast<double>(trace->requests.size()));
  }
}

}  // namespace
}  // namespace headrace
