// Goal: steps with prompts and decodes take the target's time, on any machine and as prompts grow dearer, within few
// steps; a delayed step does not starve prompts; a prompt never stops.
#include "scheduler/prompt_budget.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace headrace {
namespace {

TEST(PromptBudgetTest, StepsTakeTheirTargetOnEveryMachine) {
  for (const double row_us : {20.0, 300.0, 1000.0}) {
    for (const TimeNs decodes : {4 * kNsPerMs, 30 * kNsPerMs}) {
      for (const TimeNs wanted : {TimeNs{0}, 100 * kNsPerMs}) {
        PromptBudget budget(wanted);
        const double target = static_cast<double>(wanted > 0 ? wanted : std::max(kShortestItl, 3 * decodes));
        int64_t position = 0;
        for (int step = 0; step < 60; ++step) {
          const int64_t rows = budget.Rows(decodes);
          EXPECT_EQ(rows % kPromptRowsStep, 0);
          const double row = row_us * 1000 * (1 + static_cast<double>(position) / 8000);
          const double time = static_cast<double>(decodes) + static_cast<double>(rows) * row;
          const double grain = row * kPromptRowsStep;
          if (step > 8) {
            EXPECT_LT(time, target * 1.1 + grain) << row_us << " us, step " << step;
            EXPECT_GT(time, target * 0.9 - grain) << row_us << " us, step " << step;
          }
          budget.Observe(decodes, rows, static_cast<TimeNs>(time));
          position += rows;
        }
      }
    }
  }
}

TEST(PromptBudgetTest, APromptAloneIsEnoughToBeginWith) {
  PromptBudget budget(50 * kNsPerMs);
  EXPECT_EQ(budget.Rows(5 * kNsPerMs), kPromptRowsStep) << "nothing is known";
  budget.Observe(0, 1024, 300 * kNsPerMs);
  EXPECT_EQ(budget.Rows(5 * kNsPerMs), 144);
  EXPECT_EQ(budget.Rows(60 * kNsPerMs), kPromptRowsStep) << "decodes alone miss the target, and prompts go on";
}

TEST(PromptBudgetTest, BriefStepsAreNeverLongerAndStillAWholeTile) {
  PromptBudget budget, tight(10 * kNsPerMs);
  for (PromptBudget* b : {&budget, &tight}) b->Observe(0, 1024, 300 * kNsPerMs);
  EXPECT_EQ(budget.Rows(3 * kNsPerMs), 128) << "45 ms";
  EXPECT_EQ(budget.Rows(3 * kNsPerMs, true), 48) << "18 ms";
  EXPECT_EQ(budget.Rows(40 * kNsPerMs, true), 32) << "a quarter more than the decodes take";
  EXPECT_EQ(tight.Rows(3 * kNsPerMs, true), tight.Rows(3 * kNsPerMs)) << "the operator's target is briefer";
  EXPECT_EQ(PromptBudget().Rows(3 * kNsPerMs, true), kPromptRowsStep);
}

TEST(PromptBudgetTest, ADelayedStepIsForgottenSoon) {
  PromptBudget budget(50 * kNsPerMs);
  for (int i = 0; i < 20; ++i) budget.Observe(5 * kNsPerMs, 144, 48 * kNsPerMs);
  const int64_t before = budget.Rows(5 * kNsPerMs);
  budget.Observe(5 * kNsPerMs, 144, 5 * kNsPerSecond);
  EXPECT_GE(budget.Rows(5 * kNsPerMs), before * 2 / 3);
  for (int i = 0; i < 10; ++i) budget.Observe(5 * kNsPerMs, 144, 48 * kNsPerMs);
  EXPECT_GE(budget.Rows(5 * kNsPerMs), before - kPromptRowsStep);
}

}  // namespace
}  // namespace headrace
