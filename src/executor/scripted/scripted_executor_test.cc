// Goal: a script is read strictly (every mistake named), says what it holds, and its faults and delays happen where it
// says.
#include "executor/scripted/scripted_executor.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(ScriptTest, MistakesAreNamed) {
  const struct {
    const char* json;
    const char* field;
  } cases[] = {{"{}", "replies"},
               {R"({"replies": []})", "replies"},
               {R"({"replies": [{}]})", "replies[0].pieces"},
               {R"({"replies": [{"pieces": [""]}]})", "replies[0].pieces"},
               {R"({"replies": [{"pieces": ["a"]}], "speed": 3})", "speed"},
               {R"({"replies": [{"pieces": ["a"]}], "kv_blocks": 0})", "kv_blocks"},
               {R"({"replies": [{"pieces": ["a", "b", "c", "d", "e"], "repeat": 1048576}]})", "replies[0]"}};
  for (const auto& c : cases) {
    const auto script = ParseScript(c.json);
    ASSERT_FALSE(script) << c.json;
    EXPECT_EQ(script.error().field, c.field) << script.error().message;
  }
  EXPECT_FALSE(ParseScript("nonsense"));
}

TEST(ScriptTest, BytesMakeEachByteOfThePiecesAToken) {
  const auto script =
      ParseScript(R"({"replies": [{"pieces": ["aé", "b"], "bytes": true, "repeat": 2}, {"pieces": ["aé"]}]})");
  ASSERT_TRUE(script) << script.error().message;
  EXPECT_EQ(script->replies[0].tokens, (std::vector<int32_t>{'a', 0xC3, 0xA9, 'b', 'a', 0xC3, 0xA9, 'b'}));
  EXPECT_EQ(script->replies[1].tokens, std::vector<int32_t>{kScriptFirstPiece});
  EXPECT_EQ(script->pieces, std::vector<std::string>{"aé"}) << "no token of the vocabulary stands for said bytes";
  EXPECT_EQ(ParseScript(R"({"replies": [{"pieces": ["a"], "bytes": 1}]})").error().field, "replies[0].bytes");
}

TEST(ScriptTest, BytesAreSpelledAsByteLevelVocabulariesDo) {
  EXPECT_EQ(ByteLevelSpelling("a"), "a");
  EXPECT_EQ(ByteLevelSpelling(" "), "\u0120");
  EXPECT_EQ(ByteLevelSpelling("\n"), "\u010a");
  EXPECT_EQ(ByteLevelSpelling("\xC3\xA9"), "\u00c3\u00a9");
  EXPECT_EQ(ByteLevelSpelling("\x7f"), "\u0121");
}

TEST(ScriptedExecutorTest, SaysTheMatchingReplyWithItsDelays) {
  const Script script = *ParseScript(R"({"step_ms": 2, "prefill_us_per_token": 100,
      "replies": [{"match": "hi", "pieces": ["hel", "lo"], "delay_ms": 7}, {"pieces": ["other"]}]})");
  TimeNs slept = 0;
  ScriptedExecutor executor(script, [&](TimeNs t) { slept += t; });
  StepInput input;
  input.token_ids = {'h', 'i'};
  input.spans = {{.request = 1, .first_row = 0, .rows = 2, .prompt_tokens = 2, .block_count = 1}};
  input.blocks = {0};
  input.samples = {{.row = 1, .span = 0, .position = 2, .params = {}}};
  std::vector<int32_t> said;
  for (int32_t position = 2; position < 5; ++position) {
    ASSERT_TRUE(executor.Submit(input));
    said.push_back((*executor.Wait())->results[0].token);
    input.token_ids = {said.back()};
    input.spans = {
        {.request = 1, .first_row = 0, .rows = 1, .first_position = position, .prompt_tokens = 2, .block_count = 1}};
    input.samples = {{.row = 0, .span = 0, .position = static_cast<uint64_t>(position + 1), .params = {}}};
  }
  EXPECT_EQ(said, (std::vector<int32_t>{kScriptFirstPiece, kScriptFirstPiece + 1, kScriptEnd}));
  EXPECT_EQ(slept, 3 * (2 + 7) * kNsPerMs + 2 * 100 * kNsPerUs);
}

// The prompt is what lies in the blocks: a second request that was given the first one's block, and one other token to
// compute, hears the reply to the whole.
TEST(ScriptedExecutorTest, ReadsThePromptFromItsBlocks) {
  const Script script = *ParseScript(R"({"replies": [{"match": "aab", "pieces": ["right"]}, {"pieces": ["wrong"]}]})");
  ScriptedExecutor executor(script, [](TimeNs) {});
  StepInput input;
  input.token_ids.assign(64, 'a');
  input.spans = {{.request = 1, .rows = 64, .prompt_tokens = 65, .block_count = 1}};
  input.blocks = {3};
  ASSERT_TRUE(executor.Submit(input) && executor.Wait());
  input.token_ids = {'b'};
  input.spans = {{.request = 2, .rows = 1, .first_position = 64, .prompt_tokens = 65, .block_count = 2}};
  input.samples = {{.row = 0, .span = 0, .position = 65, .params = {}}};
  for (const auto& [first, said] : {std::pair{3, kScriptFirstPiece}, std::pair{5, kScriptFirstPiece + 1}}) {
    input.blocks = {first, 4};
    ASSERT_TRUE(executor.Submit(input));
    EXPECT_EQ((*executor.Wait())->results[0].token, said);
    ++input.spans[0].request;
  }
}

}  // namespace
}  // namespace headrace
