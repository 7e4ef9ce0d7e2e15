// Goal: a step's decisions read back as they were written, and what is none is refused by name.
#include "trace/decision_log.h"

#include <gtest/gtest.h>

#include <span>

namespace headrace {
namespace {

TEST(DecisionLogTest, ReadsBack) {
  const StepDecision step{
      .now = 5,
      .began = 6,
      .end = 1'000'000'007,
      .arrivals = {{.request = 7,
                    .prompt_tokens = 100,
                    .max_tokens = 20,
                    .band = 2,
                    .position = 3,
                    .tenant = UINT64_MAX,
                    .weight = 0.5,
                    .arrival = 4,
                    .deadline = 99},
                   {.request = 8, .prompt_tokens = 1, .max_tokens = 0, .prompt_logits = true, .keep_until = 60}},
      .cancelled = {1, 2},
      .expired = {5},
      .preempted = {4},
      .spans = {{7, 0, 64, false}, {3, 700, 1, true}},
      .during = {{.request = 10, .prompt_tokens = 3}},
      .ended = {{3, 12, false, {{1, 2}, {UINT64_MAX, 0}}}, {9, 0, true, {}}},
      .failed = true};
  std::string text;
  AppendDecision(step, &text);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto read = ParseDecision(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, step);
  text.clear();
  AppendDecision({.now = 1, .began = 1, .end = 2}, &text);
  EXPECT_EQ(text, "{\"now\":1,\"began\":1,\"end\":2}\n");
}

TEST(DecisionLogTest, AFileOfThemReadsBack) {
  const std::string path = testing::TempDir() + "/log.decisions";
  const DecisionSetup setup{.context = 4096,
                            .kv_blocks = 10,
                            .rows_max = 256,
                            .logit_rows_max = 64,
                            .sequences_max = 8,
                            .waiting_max = 5,
                            .shared_tokens_max = 100,
                            .prefix_cache = false,
                            .room_ahead = false,
                            .itl_target = 9,
                            .brown_out_wait = 7};
  const StepDecision step{.now = 1, .began = 1, .end = 2, .spans = {{7, 0, 64, false}}};
  {
    auto log = CreateDecisionLog(path);
    ASSERT_TRUE(log) << log.error().message;
    (*log)->OnSetup(setup);
    (*log)->OnStep(step);
    (*log)->OnStep(step);
  }
  const auto source = OpenFile(path);
  ASSERT_TRUE(source);
  const auto read = LoadDecisions(**source);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->setup, setup);
  EXPECT_EQ(read->steps, std::vector<StepDecision>({step, step}));
  EXPECT_FALSE(CreateDecisionLog("/nowhere/at/all"));
  EXPECT_FALSE(ParseSetup("{}"));
  EXPECT_FALSE(ParseSetup(R"({"headrace_decisions":2})"));
}

TEST(DecisionLogTest, LongLogsAreRefused) {
  std::string text;
  AppendSetup({.context = 1, .kv_blocks = 1, .rows_max = 1, .logit_rows_max = 1, .sequences_max = 1}, &text);
  for (size_t i = 0; i < 4; ++i) AppendDecision({.now = 1, .end = 2}, &text);
  const auto source = SourceFromMemory(std::as_bytes(std::span(text)), "log");
  EXPECT_EQ(LoadDecisions(*source, 4)->steps.size(), 4u);
  const auto refused = LoadDecisions(*source, 3);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
  EXPECT_NE(refused.error().message.find("line 5"), std::string::npos) << refused.error().message;
}

TEST(DecisionLogTest, RefusesWhatIsNone) {
  for (const char* line :
       {"", "[]", "{}", R"({"now":1})", R"({"now":1,"end":2,"in":[[1]]})",
        R"({"now":1,"end":2,"in":[[1,0,5,2,0,0,1,0,null,null,null,false]]})",
        R"({"now":1,"end":2,"plan":[[1,2,3,true,4]]})", R"({"now":1,"end":2,"plan":[7]})",
        R"({"now":1,"end":2,"plan":[[1,2,4294967296,true]]})", R"({"now":1,"end":2,"out":[[1,2,true,[3]]]})",
        R"({"now":1,"end":2,"cancelled":[-1]})", R"({"now":1,"end":2,"cancelled":["x"]})"})
    EXPECT_FALSE(ParseDecision(line)) << line;
  EXPECT_EQ(ParseDecision(R"({"now":1,"end":2,"plan":[7]})").error().field, "plan");
  EXPECT_EQ(ParseDecision(std::string(kDecisionLineBytesMax + 1, ' ')).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace headrace
