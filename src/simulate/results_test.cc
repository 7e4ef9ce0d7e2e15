// Goal: the table follows its formulas, for odd inputs too.
#include "simulate/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(ResultsTest, FollowsTheFormulas) {
  constexpr TimeNs kMs = kNsPerMs;
  const std::vector<RequestResult> results = {
      // 500 ms to the first token, ten more in 900 ms.
      {.tenant = 1,
       .arrival = 0,
       .first_token = 500 * kMs,
       .end = 1400 * kMs,
       .prompt_tokens = 100,
       .cached_tokens = 60,
       .output_tokens = 10},
      // Too late for its first token.
      {.tenant = 1,
       .arrival = 0,
       .first_token = 2500 * kMs,
       .end = 2500 * kMs,
       .prompt_tokens = 100,
       .output_tokens = 1},
      // 200 ms a token.
      {.tenant = 2,
       .weight = 2,
       .arrival = 1000 * kMs,
       .first_token = 1100 * kMs,
       .end = 1300 * kMs,
       .prompt_tokens = 298,
       .output_tokens = 2},
      {.outcome = Outcome::kRefused, .tenant = 3, .arrival = 4000 * kMs},
      {.outcome = Outcome::kCancelled,
       .tenant = 2,
       .weight = 2,
       .arrival = 4000 * kMs,
       .first_token = 4200 * kMs,
       .end = 5000 * kMs,
       .prompt_tokens = 2,
       .output_tokens = 6},
  };
  const ResultTable t = Tabulate(results, {100, 100, 200}, {});
  EXPECT_EQ(t.requests, 5u);
  EXPECT_EQ(t.finished, 3u);
  EXPECT_EQ(t.refused, 1u);
  EXPECT_EQ(t.cancelled, 1u);
  EXPECT_EQ(t.ttft_ms.count, 4u);
  EXPECT_EQ(t.ttft_ms.p50, 350);
  EXPECT_EQ(t.tpot_ms.count, 2u);
  EXPECT_EQ(t.tpot_ms.mean, 150);
  EXPECT_EQ(t.e2e_ms.largest, 2500);
  EXPECT_NEAR(t.itl_ms.mean, 400.0 / 3, 1e-9);
  EXPECT_EQ(t.seconds, 5);
  EXPECT_EQ(t.attainment, 0.2);
  EXPECT_EQ(t.goodput, 0.2);
  EXPECT_NEAR(t.output_tokens_per_second, 19.0 / 5, 1e-9);
  EXPECT_EQ(t.hit_rate, 60.0 / 500);
  // 151 and 154 tokens by weight.
  EXPECT_NEAR(t.fairness, 305.0 * 305 / (2 * (151.0 * 151 + 154.0 * 154)), 1e-12);
  const std::string text = FormatTable(t, {});
  EXPECT_THAT(text, HasSubstr("attainment 0.200 (TTFT <= 2000 ms, TPOT <= 100 ms)"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST(ResultsTest, NothingAndTooLittle) {
  const ResultTable none = Tabulate({}, {}, {});
  EXPECT_EQ(none.attainment, 0);
  EXPECT_THAT(FormatTable(none, {}), Not(HasSubstr("nan")));
  std::vector<RequestResult> few(499, {.first_token = kNsPerMs, .end = kNsPerMs, .output_tokens = 1});
  EXPECT_THAT(FormatTable(Tabulate(few, {}, {}), {}), HasSubstr("         -")) << "no p99 of 499";
  few.push_back(few.back());
  EXPECT_THAT(FormatTable(Tabulate(few, {}, {}), {}), Not(HasSubstr("         -")));
  const std::vector<RequestResult> refused(3, {.outcome = Outcome::kRefused});
  EXPECT_EQ(Tabulate(refused, {}, {}).fairness, 1);
}

}  // namespace
}  // namespace headrace
