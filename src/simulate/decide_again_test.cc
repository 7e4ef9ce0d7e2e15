// Goal: given the same again by its log, an engine decides the same: under faults, preemptions, a shared cache,
// refusals and deadlines; and where the log was changed, the difference is named.
#include "simulate/decide_again.h"

#include <gtest/gtest.h>

#include "simulate/simulation.h"

namespace headrace {
namespace {

class Keeper final : public DecisionSink {
 public:
  void OnSetup(const DecisionSetup& setup) override { log.setup = setup; }
  void OnStep(const StepDecision& step) override { log.steps.push_back(step); }
  Decisions log;
};

Decisions LogOf(SimulationOptions options) {
  Keeper keeper;
  options.decisions = &keeper;
  EXPECT_TRUE(RunSimulation(options));
  return std::move(keeper.log);
}

TEST(DecideAgainTest, TheSameInputGivesTheSameDecisions) {
  size_t preemptions = 0;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const Decisions log = LogOf({.seed = seed,
                                 .requests = 800,
                                 .requests_per_second = 12,
                                 .faults = kBadDay,
                                 .shared_tokens_max = seed == 2 ? 40 : 0,
                                 .queue_timeout_s = 5,
                                 .request_timeout_s = seed == 3 ? 10.0 : 0,
                                 .prefix_cache = seed != 4,
                                 .room_ahead = seed == 1,
                                 .check = false});
    const DecidedAgain again = DecideAgain(log);
    EXPECT_EQ(again.difference, "") << "step " << again.first_difference << ", seed " << seed;
    EXPECT_EQ(again.steps, log.steps.size());
    EXPECT_GT(again.steps, 1000u);
    preemptions += again.preemptions;
  }
  EXPECT_GT(preemptions, 20u);
}

// Pins decide what is evicted, and so what is computed: a log tells them.
TEST(DecideAgainTest, ALogWithoutItsPinsIsDecidedInAnotherWay) {
  Decisions log = LogOf({.seed = 6, .requests = 800, .requests_per_second = 12, .check = false});
  const DecidedAgain again = DecideAgain(log);
  EXPECT_EQ(again.difference, "") << "step " << again.first_difference;
  EXPECT_EQ(again.steps, log.steps.size());
  const auto change_pins = [&log](TimeNs until) {
    int changed = 0;
    for (StepDecision& step : log.steps) {
      for (auto* arrivals : {&step.arrivals, &step.during}) {
        for (DecidedArrival& arrival : *arrivals) {
          changed += arrival.keep_until > 0 ? 1 : 0;
          if (arrival.keep_until > 0) arrival.keep_until = until;
        }
      }
    }
    return changed;
  };
  EXPECT_GT(change_pins(INT64_MAX), 10);
  EXPECT_GT(DecideAgain(log).steps, 0u) << "no clock gets there, and nothing overflows";
  EXPECT_GT(change_pins(0), 10);
  EXPECT_NE(DecideAgain(log).difference, "");
}

TEST(DecideAgainTest, ADifferenceIsNamed) {
  Decisions log = LogOf({.seed = 5, .requests = 100, .check = false});
  for (size_t step = 200; step < log.steps.size(); ++step) {
    if (log.steps[step].spans.empty()) continue;
    log.steps[step].spans.back().rows += 1;
    const DecidedAgain again = DecideAgain(log);
    EXPECT_EQ(again.first_difference, step);
    EXPECT_NE(again.difference.find("tokens of request"), std::string::npos) << again.difference;
    return;
  }
}

}  // namespace
}  // namespace headrace
