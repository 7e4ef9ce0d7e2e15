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

TEST(StepCostTest, PromptsAttendToWhatStandsBeforeThem) {
  const auto cost = StepCost::Make(
      {.step_us = 1000, .prompt_row_us = 100, .prompt_us = 700, .prompt_context_ns = 900, .prompt_pair_ns = 50});
  ASSERT_TRUE(cost);
  StepLoad load;
  load.Add(1000, 200, 5000);
  EXPECT_EQ(load.prompt_rows, 200);
  EXPECT_EQ(load.prompt_pairs, 200 * 1000 + 200 * 201 / 2);
  EXPECT_EQ(cost->Of(load), (1000 + 700 + 20'000) * kNsPerUs + 1200 * 900 + load.prompt_pairs * 50);
  load.Add(6000, 1, 5000);
  load.Add(6000, 2, 5000);  // computed again after a preemption
  EXPECT_EQ(load.decode_rows, 1);
  EXPECT_EQ(load.context_tokens, 6001);
  EXPECT_EQ(load.prompt_rows, 202);
  for (int64_t position : {0, 1000, 50'000}) {
    const TimeNs target = 200 * kNsPerMs;
    const int64_t rows = cost->PromptRowsWithin(target, load, position);
    StepLoad fits = load, exceeds = load;
    fits.Add(position, rows, position + rows);
    exceeds.Add(position, rows + 1, position + rows + 1);
    EXPECT_LE(cost->Of(fits), target) << position;
    EXPECT_GT(cost->Of(exceeds), target) << position;
  }
}

TEST(StepCostTest, ManyAnswersCostMoreThanFewEach) {
  const auto cost =
      StepCost::Make({.step_us = 1000, .decode_row_us = 100, .context_token_ns = 0, .wide_decode_row_us = 50});
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->Of({.decode_rows = 8}), 1800 * kNsPerUs);
  EXPECT_EQ(cost->Of({.decode_rows = 10}), 2100 * kNsPerUs);
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
