// Goal: the ladder is climbed in its order, rung by rung, when waits grow, comes down when they have been short for a
// while and not before, and each rung takes from the band that it names and from no other.
#include "queueing/brown_out.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr TimeNs kS = kNsPerSecond;

TEST(BrownOutTest, EachRungHasItsWaitAndTakesFromItsBandOnly) {
  const struct {
    TimeNs wait;
    Rung rung;
    bool sheds_batch, sheds_normal;
    int64_t batch_tokens;
  } rungs[] = {{kS - 1, Rung::kNone, false, false, 5000},
               {kS, Rung::kNoDrafts, false, false, 5000},
               {2 * kS, Rung::kNoBatch, false, false, 5000},
               {4 * kS, Rung::kShortAnswers, false, false, kBrownOutTokens},
               {8 * kS, Rung::kShedBatch, true, false, kBrownOutTokens},
               {16 * kS, Rung::kShedNormal, true, true, kBrownOutTokens},
               {3600 * kS, Rung::kShedNormal, true, true, kBrownOutTokens}};
  BrownOut slowly(2 * kS);
  for (const auto& r : rungs) {
    BrownOut at_once(2 * kS);
    for (BrownOut* ladder : {&slowly, &at_once}) {
      ladder->Observe(r.wait, 5);
      EXPECT_EQ(ladder->rung(), r.rung) << r.wait;
      EXPECT_EQ(ladder->Sheds(Band::kBatch), r.sheds_batch);
      EXPECT_EQ(ladder->Sheds(Band::kNormal), r.sheds_normal);
      EXPECT_FALSE(ladder->Sheds(Band::kHigh));
      EXPECT_FALSE(ladder->Sheds(Band::kCritical));
      EXPECT_EQ(ladder->MaxTokens(Band::kBatch, 5000), r.batch_tokens);
      EXPECT_EQ(ladder->MaxTokens(Band::kBatch, 7), 7);
      EXPECT_EQ(ladder->MaxTokens(Band::kNormal, 5000), 5000);
    }
  }
  for (int rung = 1; rung < kRungs; ++rung) EXPECT_EQ(slowly.climbed()[static_cast<size_t>(rung)], 1u);
}

TEST(BrownOutTest, ComesDownARungAtATimeWhenItHasBeenCalm) {
  BrownOut ladder(2 * kS);
  ladder.Observe(20 * kS, 0);
  TimeNs now = kS;
  for (int rung = kRungs - 2; rung >= 0; --rung) {
    ladder.Observe(0, now);
    now += kBrownOutCalm - 1;
    ladder.Observe(0, now);
    EXPECT_EQ(static_cast<int>(ladder.rung()), rung + 1) << "not yet";
    now += 1;
    ladder.Observe(0, now);
    EXPECT_EQ(static_cast<int>(ladder.rung()), rung);
  }
  EXPECT_LT(now, 4 * kS) << "normal again within seconds";
}

TEST(BrownOutTest, AWaitAboutARungsOwnDoesNotSwing) {
  BrownOut ladder(2 * kS);
  for (int i = 0; i < 1000; ++i) ladder.Observe(i % 2 == 0 ? 2 * kS + 1 : kS + kS / 10, i * kNsPerMs * 100);
  EXPECT_EQ(ladder.rung(), Rung::kNoBatch);
  EXPECT_EQ(ladder.climbed()[static_cast<size_t>(Rung::kNoBatch)], 1u);
  ladder.Observe(0, 200 * kS);
  ladder.Observe(3 * kS, 200 * kS + kBrownOutCalm);
  ladder.Observe(0, 200 * kS + 2 * kBrownOutCalm);
  EXPECT_EQ(ladder.rung(), Rung::kNoBatch) << "calm was interrupted";
}

TEST(BrownOutTest, OffItNeverClimbs) {
  BrownOut ladder(0);
  ladder.Observe(kNever, 1);
  EXPECT_EQ(ladder.rung(), Rung::kNone);
}

}  // namespace
}  // namespace headrace
