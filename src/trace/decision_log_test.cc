// Goal: a step's decisions read back as they were written, and what is none is refused by name.
#include "trace/decision_log.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(DecisionLogTest, ReadsBack) {
  const StepDecision step{.now = 5,
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
                                       {.request = 8, .prompt_tokens = 1, .max_tokens = 0, .prompt_logits = true}},
                          .cancelled = {1, 2},
                          .spans = {{7, 0, 64, false}, {3, 700, 1, true}},
                          .preempted = {4},
                          .expired = {5},
                          .ended = {{3, 12, {{1, 2}, {UINT64_MAX, 0}}}, {9, 0, {}}},
                          .failed = true};
  std::string text;
  AppendDecision(step, &text);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  const auto read = ParseDecision(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, step);
  text.clear();
  AppendDecision({.now = 1, .end = 2}, &text);
  EXPECT_EQ(text, "{\"now\":1,\"end\":2}\n");
}

TEST(DecisionLogTest, RefusesWhatIsNone) {
  for (const char* line :
       {"", "[]", "{}", R"({"now":1})", R"({"now":1,"end":2,"in":[[1]]})",
        R"({"now":1,"end":2,"in":[[1,0,5,2,0,0,1,0,null,null,null,false]]})",
        R"({"now":1,"end":2,"plan":[[1,2,3,true,4]]})", R"({"now":1,"end":2,"plan":[7]})",
        R"({"now":1,"end":2,"plan":[[1,2,4294967296,true]]})", R"({"now":1,"end":2,"out":[[1,2,[3]]]})",
        R"({"now":1,"end":2,"cancelled":[-1]})", R"({"now":1,"end":2,"cancelled":["x"]})"})
    EXPECT_FALSE(ParseDecision(line)) << line;
  EXPECT_EQ(ParseDecision(R"({"now":1,"end":2,"plan":[7]})").error().field, "plan");
  EXPECT_EQ(ParseDecision(std::string(kDecisionLineBytesMax + 1, ' ')).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace headrace
