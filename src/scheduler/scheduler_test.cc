// Goal: the scheduler keeps its promises: every request finishes, budgets and pool are never exceeded, decodes are
// never held up by prompts, short prompts do not wait behind long ones and long ones do not starve, preemption takes
// from the newest of the lowest band, and what cannot ever fit is refused at once.
#include "scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace headrace {
namespace {

SchedulerLimits SmallLimits() {
  return {.context = 1024, .batch_tokens_max = 64, .logit_rows_max = 16, .sequences_max = 8, .waiting_max = 100};
}

// Advances everything that was planned; returns the rows each slot computed.
std::map<int32_t, int32_t> Compute(Scheduler& scheduler, const BatchPlan& plan) {
  std::map<int32_t, int32_t> rows;
  for (const PlannedSpan& span : plan.spans) {
    scheduler.Advance(span, span.samples);
    rows[span.slot] = span.rows;
  }
  return rows;
}

TEST(SchedulerTest, PromptsTakeTheWholeStepUntilAnAnswerWaits) {
  SchedulerLimits limits = SmallLimits();
  limits.shared_tokens_max = 24;
  Scheduler scheduler(limits, 40);
  BatchPlan plan;
  scheduler.ReservePlan(&plan);
  const auto first = scheduler.Add({.prompt_tokens = 100, .max_tokens = 50});
  ASSERT_TRUE(first);
  scheduler.Plan(&plan);
  EXPECT_EQ(plan.rows, 64);
  Compute(scheduler, plan);
  scheduler.Plan(&plan);
  EXPECT_EQ(plan.rows, 36);
  Compute(scheduler, plan);
  const auto second = scheduler.Add({.prompt_tokens = 100, .max_tokens = 50});
  ASSERT_TRUE(second);
  scheduler.Plan(&plan);
  EXPECT_EQ(plan.rows, 24);
  EXPECT_EQ(Compute(scheduler, plan)[*second], 23);
  scheduler.Remove(*first);
  scheduler.Plan(&plan);
  EXPECT_EQ(plan.rows, 64) << "nobody decodes any more";
}

// Four of 64 + 64 tokens fit a pool of 6 blocks now, three as they end one after another: the fourth waits and nothing
// is computed twice.
TEST(SchedulerTest, WhatWillNotFitUntilItEndsWaits) {
  for (const bool room_ahead : {true, false}) {
    SchedulerLimits limits = SmallLimits();
    limits.room_ahead = room_ahead;
    Scheduler scheduler(limits, 6);
    BatchPlan plan;
    scheduler.ReservePlan(&plan);
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(scheduler.Add({.prompt_tokens = 60, .max_tokens = 68}));
    int32_t most = 0;
    while (scheduler.HasWork()) {
      scheduler.Plan(&plan);
      scheduler.CheckIntegrity();
      most = std::max(most, scheduler.running());
      Compute(scheduler, plan);
      for (const PlannedSpan& span : plan.spans) {
        if (span.first_position + span.rows == 127) scheduler.Remove(span.slot);
      }
    }
    EXPECT_EQ(scheduler.recomputed_tokens() == 0, room_ahead);
    EXPECT_EQ(scheduler.preemptions() == 0, room_ahead);
    EXPECT_EQ(most == 4, !room_ahead);
  }
}

// A long normal prompt: its chunks are brief for a while behind a critical arrival, also where nothing decodes, and the
// critical prompt's own step holds nothing else.
TEST(SchedulerTest, StepsAreBriefWhileCriticalPromptsCome) {
  Scheduler scheduler({.context = 65'536,
                       .batch_tokens_max = 512,
                       .logit_rows_max = 8,
                       .sequences_max = 8,
                       .waiting_max = 8,
                       .itl_target = 0},
                      2000);
  BatchPlan plan;
  scheduler.ReservePlan(&plan);
  const auto step = [&] {
    scheduler.Plan(&plan);
    scheduler.Measured(plan, kNsPerMs + plan.rows * 250 * kNsPerUs);
    return Compute(scheduler, plan);
  };
  const int32_t normal = *scheduler.Add({.prompt_tokens = 60'000, .max_tokens = 10});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step()[normal], 512);
  const int32_t critical = *scheduler.Add({.prompt_tokens = 100, .max_tokens = 10, .place = {.band = Band::kCritical}});
  auto rows = step();
  EXPECT_EQ(rows[critical], 100);
  EXPECT_EQ(rows[normal], 0);
  scheduler.Remove(critical);
  EXPECT_EQ(step()[normal], 64) << "18 ms at 250 us a row, whole tiles";
  int brief = 1;
  while (step()[normal] == 64) ++brief;
  EXPECT_NEAR(brief, 200, 2);
  EXPECT_EQ(step()[normal], 512);
}

// Batch work that may need the whole pool does not keep out what is more urgent; the other way round it does.
TEST(SchedulerTest, WhatLessUrgentOnesWillNeedIsRoom) {
  for (const auto& [first, second] : {std::pair(Band::kBatch, Band::kNormal), std::pair(Band::kNormal, Band::kBatch)}) {
    Scheduler scheduler(SmallLimits(), 6);
    BatchPlan plan;
    scheduler.ReservePlan(&plan);
    for (const Band band : {first, second}) {
      ASSERT_TRUE(scheduler.Add({.prompt_tokens = 60, .max_tokens = 300, .place = {.band = band}}));
      for (int step = 0; step < 3; ++step) {
        scheduler.Plan(&plan);
        Compute(scheduler, plan);
      }
    }
    EXPECT_EQ(scheduler.running(), second == Band::kNormal ? 2 : 1);
  }
}

// A long prompt beside two answers: steps take three times what the answers take alone, once that was measured.
TEST(SchedulerTest, StepsWithPromptsKeepTheInterTokenTarget) {
  Scheduler scheduler({.context = 16'384,
                       .batch_tokens_max = 1024,
                       .logit_rows_max = 8,
                       .sequences_max = 8,
                       .waiting_max = 8,
                       .itl_target = 0},
                      400);
  BatchPlan plan;
  scheduler.ReservePlan(&plan);
  // 20 ms, 1 ms for each row of a decode, 200 us for one of a prompt.
  const auto step = [&] {
    scheduler.Plan(&plan);
    int32_t decodes = 0;
    for (const PlannedSpan& span : plan.spans) decodes += span.rows == 1 ? 1 : 0;
    const TimeNs time = 20 * kNsPerMs + decodes * kNsPerMs + (plan.rows - decodes) * 200 * kNsPerUs;
    scheduler.Measured(plan, time);
    Compute(scheduler, plan);
    return time;
  };
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(scheduler.Add({.prompt_tokens = 50, .max_tokens = 5000}));
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(plan.rows, 2);
  const int32_t long_one = *scheduler.Add({.prompt_tokens = 12'000, .max_tokens = 5});
  for (int i = 0; i < 10; ++i) step();
  for (int i = 0; i < 20; ++i) {
    const TimeNs time = step();
    EXPECT_NEAR(static_cast<double>(time), 66e6, 8e6);
    EXPECT_EQ(plan.spans.size(), 3u) << "everyone has rows";
  }
  scheduler.Remove(long_one);
}

TEST(SchedulerTest, RandomTrafficAlwaysFinishesWithinEveryBudget) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const SchedulerLimits limits = SmallLimits();
    Scheduler scheduler(limits, 20);
    BatchPlan plan;
    scheduler.ReservePlan(&plan);
    std::map<int32_t, int64_t> generated;
    TimeNs now = 0;
    int added = 0, finished = 0;
    for (int step = 0; finished < 200; ++step) {
      ASSERT_LT(step, 200'000) << "no progress";
      now += 5 * kNsPerMs;
      if (added < 200 && random.Below(3) == 0) {
        const auto slot = scheduler.Add({.prompt_tokens = static_cast<int64_t>(1 + random.Below(400)),
                                         .max_tokens = static_cast<int64_t>(1 + random.Below(200)),
                                         .prompt_logits = random.Below(10) == 0,
                                         .place = {.band = static_cast<Band>(random.Below(4)), .arrival = now}});
        if (slot) {
          ++added;
          generated[*slot] = 0;
        }
      }
      scheduler.Plan(&plan);
      scheduler.CheckIntegrity();
      int32_t rows = 0;
      for (const PlannedSpan& span : plan.spans) rows += span.rows;
      ASSERT_EQ(rows, plan.rows);
      ASSERT_LE(rows, limits.batch_tokens_max);
      ASSERT_TRUE(!plan.spans.empty() || !scheduler.HasWork());
      for (const PlannedSpan& span : plan.spans)
        ASSERT_GE(static_cast<int64_t>(scheduler.blocks(span.slot).size()) * kBlockTokens,
                  span.first_position + span.rows);
      Compute(scheduler, plan);
      for (const PlannedSpan& span : plan.spans) {
        if (!span.samples) continue;
        if (++generated[span.slot] == scheduler.max_tokens(span.slot) || random.Below(300) == 0) {
          scheduler.Remove(span.slot);
          ++finished;
        }
      }
      scheduler.CheckIntegrity();
    }
    EXPECT_EQ(scheduler.pool().available_blocks(), 20);
  }
}

TEST(SchedulerTest, O28ShortPromptsAndRunningStreamsDoNotWaitForALongPrompt) {
  Scheduler scheduler(
      {.context = 8192, .batch_tokens_max = 64, .logit_rows_max = 16, .sequences_max = 8, .waiting_max = 100}, 200);
  BatchPlan plan;
  const int32_t stream = *scheduler.Add({.prompt_tokens = 5, .max_tokens = 1000});
  scheduler.Plan(&plan);
  Compute(scheduler, plan);
  const int32_t long_one = *scheduler.Add({.prompt_tokens = 6400, .max_tokens = 5});
  scheduler.Plan(&plan);
  Compute(scheduler, plan);
  const int32_t short_one = *scheduler.Add({.prompt_tokens = 20, .max_tokens = 5});
  scheduler.Plan(&plan);
  auto rows = Compute(scheduler, plan);
  EXPECT_EQ(rows[stream], 1) << "the running stream gets its row in every step";
  EXPECT_EQ(rows[short_one], 20) << "the short prompt is computed in the first step after it came";
  EXPECT_EQ(rows[long_one], 43) << "the rest of the budget goes on with the long one";
  // An endless flow of short prompts: the long one still finishes, because waiting outweighs length.
  TimeNs now = 0;
  scheduler.Remove(short_one);
  int64_t long_rows = 43 + 63;
  int steps = 0;
  while (long_rows < 6400) {
    ASSERT_LT(++steps, 2000) << "the long prompt starves";
    now += 50 * kNsPerMs;
    for (int i = 0; i < 4; ++i) (void)scheduler.Add({.prompt_tokens = 20, .max_tokens = 1, .place = {.arrival = now}});
    scheduler.Plan(&plan);
    rows = Compute(scheduler, plan);
    long_rows += rows[long_one];
    for (const PlannedSpan& span : plan.spans) {
      if (span.samples && span.slot != stream && span.slot != long_one) scheduler.Remove(span.slot);
    }
  }
}

TEST(SchedulerTest, O26WhatCanNeverFitIsRefusedAtOnceAndTheRestIsClamped) {
  Scheduler scheduler(
      {.context = 8192, .batch_tokens_max = 64, .logit_rows_max = 16, .sequences_max = 8, .waiting_max = 4},
      16);  // 1,024 tokens
  const auto refused = scheduler.Add({.prompt_tokens = 2000, .max_tokens = 10});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kContextLength);
  EXPECT_NE(refused.error().message.find("maximum context length is 1024 tokens"), std::string::npos);
  EXPECT_FALSE(scheduler.Add({.prompt_tokens = 1024, .max_tokens = 1}));
  const auto clamped = scheduler.Add({.prompt_tokens = 900, .max_tokens = 4000});
  ASSERT_TRUE(clamped);
  EXPECT_EQ(scheduler.max_tokens(*clamped), 124);
  for (int i = 0; i < 11; ++i) ASSERT_TRUE(scheduler.Add({.prompt_tokens = 20, .max_tokens = 4}));
  const auto full = scheduler.Add({.prompt_tokens = 20, .max_tokens = 4});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::kOverloaded);
}

TEST(SchedulerTest, PreemptionTakesFromTheNewestOfTheLowestBandAndUrgentWorkGetsIn) {
  Scheduler scheduler(
      {.context = 1024, .batch_tokens_max = 256, .logit_rows_max = 16, .sequences_max = 3, .waiting_max = 100}, 100);
  BatchPlan plan;
  const int32_t normal = *scheduler.Add({.prompt_tokens = 10, .max_tokens = 100});
  const int32_t batch_old = *scheduler.Add({.prompt_tokens = 10, .max_tokens = 100, .place = {.band = Band::kBatch}});
  const int32_t batch_new = *scheduler.Add({.prompt_tokens = 10, .max_tokens = 100, .place = {.band = Band::kBatch}});
  scheduler.Plan(&plan);
  Compute(scheduler, plan);
  const int32_t urgent = *scheduler.Add({.prompt_tokens = 10, .max_tokens = 100, .place = {.band = Band::kCritical}});
  scheduler.Plan(&plan);
  Compute(scheduler, plan);
  EXPECT_EQ(scheduler.running(), 3);
  EXPECT_FALSE(scheduler.blocks(urgent).empty());
  EXPECT_FALSE(scheduler.blocks(normal).empty());
  EXPECT_FALSE(scheduler.blocks(batch_old).empty());
  EXPECT_TRUE(scheduler.blocks(batch_new).empty());
}

TEST(SchedulerTest, OnlyThoseThatNeverStartedExpire) {
  Scheduler scheduler(
      {.context = 1024, .batch_tokens_max = 64, .logit_rows_max = 4, .sequences_max = 1, .waiting_max = 10}, 10);
  BatchPlan plan;
  (void)*scheduler.Add({.prompt_tokens = 10, .max_tokens = 100, .place = {.start_before = 100}});
  scheduler.Plan(&plan);
  Compute(scheduler, plan);
  const int32_t late = *scheduler.Add({.prompt_tokens = 10, .max_tokens = 100, .place = {.start_before = 50}});
  EXPECT_EQ(scheduler.queue().NextExpiry(), 50);
  std::vector<int32_t> expired;
  scheduler.queue().Expired(49, &expired);
  EXPECT_TRUE(expired.empty());
  scheduler.queue().Expired(1000, &expired);
  EXPECT_EQ(expired, std::vector<int32_t>{late});
}

}  // namespace
}  // namespace headrace
