// Goal: traffic is what the trace says, faster or spread where asked; a replay repeats itself, shares what the names of
// blocks say, and takes as long as the step costs add up to.
#include "simulate/replay.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "simulate/replay_report.h"
#include "simulate/traffic.h"

namespace headrace {
namespace {

RecordedRequest Asking(int64_t arrival_us, uint64_t id, int64_t prompt, int64_t output,
                       std::vector<uint64_t> blocks = {}) {
  RecordedRequest r{.arrival_us = arrival_us,
                    .id = id,
                    .tenant = 1,
                    .prompt_tokens = prompt,
                    .output_tokens = output,
                    .block_tokens = 512};
  for (uint64_t name : blocks) r.blocks.push_back({0, name});
  return r;
}

TEST(TrafficTest, FasterAndSpread) {
  std::vector<RecordedRequest> requests;
  for (uint64_t i = 0; i < 30; ++i) requests.push_back(Asking(static_cast<int64_t>(i / 10) * 3'000'000, i + 1, 1, 1));
  std::vector<RecordedRequest> spread = requests;
  SpreadArrivals(1, &spread);
  EXPECT_TRUE(std::ranges::is_sorted(spread, {}, &RecordedRequest::arrival_us));
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_GE(spread[i].arrival_us, requests[i].arrival_us);
    EXPECT_LT(spread[i].arrival_us, requests[i].arrival_us + 3'000'000);
    EXPECT_EQ(spread[i].id, i + 1);
  }
  EXPECT_GT(spread[9].arrival_us - spread[0].arrival_us, 1'000'000);
  EXPECT_EQ(spread[29].arrival_us, 6'000'000) << "nothing says how long the last group lasts";
  ScaleArrivals(0.25, &requests);
  EXPECT_EQ(requests[29].arrival_us, 24'000'000);
}

TEST(TrafficTest, PromptsBeginAlikeWhereTheirBlocksDo) {
  std::vector<int32_t> a, b, c;
  PromptTokens(Asking(0, 1, 1500, 1, {7, 8, 9}), INT32_MAX, &a);
  PromptTokens(Asking(0, 2, 1300, 1, {7, 8, 10}), INT32_MAX, &b);
  PromptTokens(Asking(0, 3, 1500, 1), INT32_MAX, &c);
  ASSERT_EQ(a.size(), 1500u);
  const auto alike = [](const auto& x, const auto& y) { return std::ranges::mismatch(x, y).in1 - x.begin(); };
  EXPECT_EQ(alike(a, b), 1024);
  EXPECT_EQ(alike(a, c), 0);
  EXPECT_GE(*std::ranges::min_element(a), 0);
}

TEST(TrafficTest, DrawnTrafficHasTheLengthsAndTheRateAskedFor) {
  const auto drawn = DrawTraffic({.arrivals = {.per_second = 5}, .requests = 4000, .tenants = 3});
  ASSERT_TRUE(drawn);
  double prompt = 0, output = 0;
  for (const RecordedRequest& r : *drawn) {
    ASSERT_TRUE(CheckRecorded(r));
    prompt += static_cast<double>(r.prompt_tokens) / 4000;
    output += static_cast<double>(r.output_tokens) / 4000;
  }
  EXPECT_NEAR(prompt, 1000, 60);
  EXPECT_NEAR(output, 200, 12);
  EXPECT_NEAR(static_cast<double>(drawn->back().arrival_us) * 1e-6, 800, 50);
  EXPECT_FALSE(DrawTraffic({.arrivals = {.per_second = -1}}));
}

TEST(ReplayTest, OneRequestTakesWhatItsStepsAddUpTo) {
  const std::vector<RecordedRequest> one = {Asking(0, 1, 3000, 11)};
  const auto report = Replay(one, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->steps, 12u);  // 2048 and 952 rows, then ten decodes
  EXPECT_NEAR(report->table.ttft_ms.mean, 12 + 3000 * 0.05, 1e-6);
  const double decode_ms = 6 + 0.06 + 12e-6 * 3006;  // contexts of 3,001 to 3,010 tokens: 3,005.5
  EXPECT_NEAR(report->table.tpot_ms.mean, decode_ms - 12e-6 * 0.5, 1e-4);
  EXPECT_EQ(report->table.finished, 1u);
}

TEST(ReplayTest, NamedBlocksAreShared) {
  std::vector<uint64_t> names(10);
  for (size_t i = 0; i < names.size(); ++i) names[i] = i;
  std::vector<RecordedRequest> requests;
  for (uint64_t i = 0; i < 20; ++i)
    requests.push_back(Asking(static_cast<int64_t>(i) * 10'000'000, i + 1, 5120, 4, names));
  const auto with = Replay(requests, {});
  const auto without = Replay(requests, {.prefix_cache = false});
  ASSERT_TRUE(with && without);
  EXPECT_NEAR(with->table.hit_rate, 19.0 / 20 * 79 / 80, 1e-9);  // never the last token's block
  EXPECT_EQ(without->table.hit_rate, 0);
  EXPECT_LT(with->table.ttft_ms.p50, 0.1 * without->table.ttft_ms.p50);
}

TEST(ReplayTest, RepeatsItselfWithFaultsAndChecks) {
  const auto traffic = DrawTraffic({.arrivals = {.per_second = 12}, .requests = 500, .tenants = 4});
  ASSERT_TRUE(traffic);
  ReplayOptions options{.faults = kBadDay, .check = true};
  options.machine.kv_tokens = 30'000;
  const auto first = Replay(*traffic, options);
  options.check = false;
  const auto second = Replay(*traffic, options);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->events_hash, second->events_hash);
  EXPECT_GT(first->table.cancelled, 20u);
  const ResultTable& t = first->table;
  EXPECT_EQ(t.finished + t.refused + t.expired + t.cancelled + t.failed, 500u);
  EXPECT_NE(ReplayAsText(*first, options, 1).find("x real time"), std::string::npos);
  EXPECT_NE(ReplayAsJson(*first, 1).find("\"times_real_time\""), std::string::npos);
  options.seed = 2;
  EXPECT_NE(Replay(*traffic, options)->events_hash, first->events_hash);
}

TEST(ReplayTest, RefusesAMachineThatIsNone) {
  ReplayOptions options;
  options.machine.kv_tokens = 63;
  EXPECT_EQ(Replay({}, options).error().field, "kv-tokens");
}

// More than the pool holds, for a quarter of an hour: it is full, and little is computed twice. That answers may become
// ten times as long as they do costs room, not work.
TEST(ReplayTest, AFullPoolComputesLittleTwice) {
  for (const int64_t answer_limit : {0, 5000}) {
    for (const int64_t kv_tokens : {30'000, 120'000}) {
      const auto drawn =
          DrawTraffic({.arrivals = {.per_second = 20}, .requests = 1200, .prompt_tokens = 700, .output_tokens = 500});
      ASSERT_TRUE(drawn);
      ReplayOptions options{.waiting_max = 10'000, .answer_limit = answer_limit};
      options.machine.kv_tokens = kv_tokens;
      const auto report = Replay(*drawn, options);
      ASSERT_TRUE(report);
      EXPECT_EQ(report->table.finished, drawn->size());
      int64_t asked = 0;
      for (const RecordedRequest& r : *drawn) asked += r.output_tokens;
      EXPECT_NEAR(static_cast<double>(report->generated_tokens), static_cast<double>(asked), 1.0)
          << "every answer whole";
      EXPECT_GT(report->preemptions, 0u);
      EXPECT_LT(static_cast<double>(report->recomputed_tokens),
                0.02 * static_cast<double>(report->prompt_tokens + report->generated_tokens));
      EXPECT_GT(report->kv_usage, answer_limit > 0 ? 0.8 : 0.88) << kv_tokens;
    }
  }
}

}  // namespace
}  // namespace headrace
