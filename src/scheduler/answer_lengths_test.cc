// Goal: what an answer may still need follows those that ended, given how long it is already and what bounds it; older
// ones are forgotten, and nothing that ended ever makes it less than a block or more than the bound.
#include "scheduler/answer_lengths.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

constexpr int64_t kNoBound = 1 << 20;

AnswerLengths After(std::initializer_list<int64_t> lengths, int times = 100) {
  AnswerLengths out;
  for (int i = 0; i < times; ++i) {
    for (const int64_t tokens : lengths) out.Ended(tokens);
  }
  return out;
}

TEST(AnswerLengthsTest, WhatIsLeftOfAnAnswerIsTheMeanOfThoseThatBecameLonger) {
  const AnswerLengths lengths = After({100, 1000});
  EXPECT_NEAR(static_cast<double>(lengths.Remaining(0, kNoBound)), 550, 20);
  EXPECT_NEAR(static_cast<double>(lengths.Remaining(200, kNoBound)), 800, 20);
}

TEST(AnswerLengthsTest, ABoundCutsTheLongOnes) {
  const AnswerLengths lengths = After({100, 1000});
  EXPECT_NEAR(static_cast<double>(lengths.Remaining(0, 300)), 200, 20);  // 100 and 300
  EXPECT_EQ(lengths.Remaining(200, 50), 50);
  EXPECT_EQ(lengths.Remaining(5, 0), 0);
  EXPECT_EQ(lengths.Remaining(0, 7), 7);
}

TEST(AnswerLengthsTest, BeyondAllOthersItIsAsMuchAgain) {
  EXPECT_EQ(After({100}, 1000).Remaining(4000, kNoBound), 4000);
  EXPECT_EQ(AnswerLengths().Remaining(0, kNoBound), 256);
}

TEST(AnswerLengthsTest, OldAnswersAreForgotten) {
  AnswerLengths lengths = After({2000}, 500);
  EXPECT_NEAR(static_cast<double>(lengths.Remaining(0, kNoBound)), 2000, 50);
  for (int i = 0; i < 2000; ++i) lengths.Ended(100);
  EXPECT_NEAR(static_cast<double>(lengths.Remaining(0, kNoBound)), 100, 20);
}

TEST(AnswerLengthsTest, AnyLengthHasABucket) {
  AnswerLengths lengths;
  for (int64_t tokens = 1; tokens < (int64_t{1} << 40); tokens = tokens * 3 / 2 + 1) {
    lengths.Ended(tokens);
    for (const int64_t generated : {int64_t{0}, tokens - 1, tokens, tokens + 1, 2 * tokens}) {
      const int64_t left = lengths.Remaining(generated, 5000);
      EXPECT_GE(left, 64) << tokens << " " << generated;
      EXPECT_LE(left, 5000) << tokens << " " << generated;
    }
  }
}

}  // namespace
}  // namespace headrace
