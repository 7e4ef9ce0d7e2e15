// Goal: the machine's step times are the line they should be, and what is no time is refused.
#include "scheduler/step_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

TEST(StepCostTest, AddsUpWhatAStepDoes) {
  const StepCost cost;
  EXPECT_EQ(cost.Of({}), 6 * kNsPerMs);
  EXPECT_EQ(cost.Of({.prompt_rows = 2048}), 108'400 * kNsPerUs);
  EXPECT_EQ(cost.Of({.decode_rows = 64, .context_tokens = 640'000}), (6000 + 3840 + 7680) * kNsPerUs);
  const StepLoad load{.decode_rows = 10, .context_tokens = 1000};
  const int64_t rows = cost.PromptRowsWithin(20 * kNsPerMs, load);
  EXPECT_EQ(rows, 267);
  EXPECT_LE(cost.Of({rows, 10, 1000}), 20 * kNsPerMs);
  EXPECT_GT(cost.Of({rows + 1, 10, 1000}), 20 * kNsPerMs);
  EXPECT_EQ(cost.PromptRowsWithin(kNsPerMs, load), 0);
}

TEST(StepCostTest, RefusesWhatIsNoTime) {
  for (double value : {-1.0, std::nan(""), 1e300}) EXPECT_FALSE(StepCost::Make({.prompt_row_us = value})) << value;
  const auto still = StepCost::Make({.step_us = 0});
  ASSERT_FALSE(still);
  EXPECT_EQ(still.error().field, "step_us");
  EXPECT_TRUE(StepCost::Make({.step_us = 1, .prompt_row_us = 0, .decode_row_us = 0, .context_token_ns = 0}));
}

}  // namespace
}  // namespace headrace
