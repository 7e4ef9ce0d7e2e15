// Goal: a file of step costs reads back as it was written; whatever else it is, it is refused by name and never more.
#include "engine/step_cost_file.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

TEST(StepCostFileTest, ReadsBackAndPassesOverWhatItDoesNotKnow) {
  StepCostFile file{.model = "m \"x\"",
                    .machine = "cpu",
                    .kernels = "avx512",
                    .threads = 3,
                    .constants = {.step_us = 1.25, .prompt_row_us = 0, .prompt_pair_ns = 7.5},
                    .error_p90 = 0.25};
  std::string text = FormatStepCost(file);
  text.replace(text.rfind('}'), 1, ",\"later\":[1]}");
  const auto read = ParseStepCost(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->model, file.model);
  EXPECT_EQ(read->constants.step_us, 1.25);
  EXPECT_EQ(read->constants.prompt_pair_ns, 7.5);
  EXPECT_EQ(read->error_p90, 0.25);
}

TEST(StepCostFileTest, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", "{}", R"({"headrace_step_cost": 2})", R"({"headrace_step_cost": 1})",
        R"({"headrace_step_cost":1,"step_us":0,"prompt_row_us":1,"decode_row_us":1,"context_token_ns":1})",
        R"({"headrace_step_cost":1,"step_us":-1,"prompt_row_us":1,"decode_row_us":1,"context_token_ns":1})"})
    EXPECT_FALSE(ParseStepCost(text)) << text;
  const auto lacking = ParseStepCost(R"({"headrace_step_cost":1,"step_us":5})");
  EXPECT_EQ(lacking.error().field, "prompt_row_us");
  EXPECT_EQ(ParseStepCost(std::string(kStepCostFileBytesMax + 1, ' ')).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace headrace
