// Goal: workers are taken out while they cost more than they give, and come back when they do not; a few stalls change
// nothing, and trials that fail become rare.
#include "base/worker_governor.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr int64_t kStepNs = 2'000'000;

// Notes `seconds` of steps in which others are waited for a share `lost` of the time. Returns the average of active().
double Steps(WorkerGovernor& governor, double seconds, double (*lost)(int active)) {
  double sum = 0;
  const int steps = static_cast<int>(seconds * 1e9 / kStepNs);
  for (int i = 0; i < steps; ++i) {
    sum += governor.active();
    const double slept = lost(governor.active()) * static_cast<double>(kStepNs) * (governor.active() - 1);
    governor.Note(kStepNs, static_cast<int64_t>(slept));
  }
  return sum / steps;
}

TEST(WorkerGovernorTest, AWorkerThatCostsMoreThanItGivesIsLeftOut) {
  WorkerGovernor two(2);
  Steps(two, 0.1, [](int) { return 0.3; });  // two at 70 % are more than one
  EXPECT_EQ(two.active(), 2);
  Steps(two, 0.03, [](int active) { return active == 2 ? 0.7 : 0.0; });
  EXPECT_EQ(two.active(), 1);

  WorkerGovernor many(16);
  Steps(many, 1, [](int active) { return active > 14 ? 0.5 : 0.02; });
  EXPECT_EQ(many.active(), 14);
}

TEST(WorkerGovernorTest, TrialsThatFailBecomeRare) {
  WorkerGovernor governor(2);
  Steps(governor, 10, [](int active) { return active == 2 ? 0.7 : 0.0; });
  const double average = Steps(governor, 40, [](int active) { return active == 2 ? 0.7 : 0.0; });
  EXPECT_GT(average, 1.0);  // it is tried again
  EXPECT_LT(average, 1.02);
}

TEST(WorkerGovernorTest, WorkersComeBackWhenTheOthersAreGone) {
  WorkerGovernor governor(4);
  Steps(governor, 20, [](int active) { return active > 1 ? 0.9 : 0.0; });
  EXPECT_EQ(governor.active(), 1);
  Steps(governor, 6, [](int) { return 0.01; });
  EXPECT_EQ(governor.active(), 4);
}

TEST(WorkerGovernorTest, OneWorkerStays) {
  WorkerGovernor governor(1);
  Steps(governor, 1, [](int) { return 1.0; });
  EXPECT_EQ(governor.active(), 1);
}

}  // namespace
}  // namespace headrace
