// Goal: drafts are planned where they make tokens cheaper and nowhere else: the choice is the best one of all there
// are, by costs that are learned from noisy steps, and a row that is not worth it is not even tried.
#include "scheduler/draft_planner.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace headrace {
namespace {

TimeNs TimeOf(const DecodeLoad& load, double row_us) {
  return static_cast<TimeNs>(1000 * (5000 + (load.drafts ? 300 : 0) + load.rows * row_us));
}

TEST(DecodeCostTest, LearnsThisMachineFromNoisySteps) {
  for (const double row_us : {50.0, 600.0, 3000.0}) {
    DecodeCost cost;
    Random random(5);
    for (int i = 0; i < 400; ++i) {
      DecodeLoad load{.rows = 1 + static_cast<int32_t>(random.Below(9)), .attended = 500};
      load.drafts = load.rows > 1;
      // A tenth is delayed by somebody else, a lot.
      const double delay = random.Below(10) == 0 ? 8 : 0.9 + 0.2 * random.Uniform();
      cost.Observe(load, static_cast<TimeNs>(static_cast<double>(TimeOf(load, row_us)) * delay));
    }
    const double step = cost.Of({.rows = 1, .attended = 500});
    EXPECT_NEAR(cost.OfRow(500) / step, row_us / (5000 + row_us), 0.05 + 0.2 * row_us / (5000 + row_us)) << row_us;
  }
}

TEST(DecodeCostTest, StepsOfOneKindTellNothingAboutMoreRows) {
  DecodeCost cost;
  const double before = cost.OfRow(0) / cost.Of({.rows = 1});
  for (int i = 0; i < 2000; ++i) cost.Observe({.rows = 1, .attended = 100}, 7 * kNsPerMs + i % 7 * 100'000);
  EXPECT_NEAR(cost.OfRow(0) / cost.Of({.rows = 1}), before, before / 2);
  EXPECT_NEAR(cost.Of({.rows = 1, .attended = 100}), 7.3e6, 2e5);
}

DraftPlanner Learned(double row_us) {
  DraftPlanner planner(8);
  for (int i = 0; i < 2000; ++i) {
    DecodeLoad load{.rows = 1 + i % 9};
    load.drafts = load.rows > 1;
    planner.cost().Observe(load, TimeOf(load, row_us));
  }
  return planner;
}

TEST(DraftPlannerTest, TheChoiceIsTheBestOfAll) {
  Random random(7);
  int drafted = 0;
  for (int round = 0; round < 300; ++round) {
    DraftPlanner planner = Learned(100 + static_cast<double>(random.Below(2000)));
    DraftOffer offers[2];
    for (DraftOffer& offer : offers) {
      offer.count = static_cast<int32_t>(random.Below(5));
      float survives = 1;
      for (int32_t i = 0; i < offer.count; ++i)
        offer.survival[static_cast<size_t>(i)] = survives *= static_cast<float>(random.Uniform());
    }
    planner.Clear();
    for (int32_t i = 0; i < 2; ++i) planner.Add({.span = i, .attended = 0, .offer = &offers[i]});
    planner.Choose(4, 6);
    const auto gain = [&](int32_t a, int32_t b) {
      double tokens = 2;
      for (int32_t i = 0; i < a; ++i) tokens += offers[0].survival[static_cast<size_t>(i)];
      for (int32_t i = 0; i < b; ++i) tokens += offers[1].survival[static_cast<size_t>(i)];
      return tokens / planner.cost().Of({.rows = 2 + a + b, .drafts = a + b > 0});
    };
    double best = 0;
    for (int32_t a = 0; a <= offers[0].count; ++a)
      for (int32_t b = 0; b <= offers[1].count && a + b <= 6; ++b) best = std::max(best, gain(a, b));
    const int32_t a = planner.decodes()[0].drafts, b = planner.decodes()[1].drafts;
    drafted += a + b > 0;
    EXPECT_LE(a + b, 6);
    if (a + b > 0) {
      EXPECT_NEAR(gain(a, b) / best, 1, 1e-9);
    } else {
      EXPECT_LT(best / gain(0, 0), 1.041);
    }
  }
  EXPECT_GT(drafted, 50);
  EXPECT_LT(drafted, 290);
}

TEST(DraftPlannerTest, LimitsHoldAndAFullBatchDraftsLess) {
  DraftPlanner planner = Learned(600);
  DraftOffer offer{.count = kDraftsMax};
  for (int32_t i = 0; i < kDraftsMax; ++i)
    offer.survival[static_cast<size_t>(i)] = static_cast<float>(std::pow(0.8, i + 1));
  const auto drafts = [&](int sequences, int32_t each_max, int32_t rows_max) {
    planner.Clear();
    for (int32_t i = 0; i < sequences; ++i) planner.Add({.span = i, .attended = 0, .offer = &offer});
    planner.Choose(each_max, rows_max);
    int32_t most = 0, all = 0;
    for (const DraftPlanner::Decode& d : planner.decodes()) {
      most = std::max(most, d.drafts);
      all += d.drafts;
    }
    EXPECT_LE(all, rows_max);
    EXPECT_LE(most, each_max);
    return most;
  };
  const int32_t alone = drafts(1, 15, 100);
  EXPECT_GT(alone, 3);
  EXPECT_LT(drafts(8, 15, 100), alone);
  EXPECT_EQ(drafts(1, 2, 100), 2);
  EXPECT_EQ(drafts(1, 15, 0), 0);
  EXPECT_EQ(drafts(1, 0, 100), 0);
  for (float& survival : offer.survival) survival = 0.1f;
  EXPECT_EQ(drafts(1, 15, 100), 0) << "one in ten pays for no row";
}

}  // namespace
}  // namespace headrace
