// Goal, the second law: the production engine on virtual time holds every invariant after every step, loses no request,
// gives each the answer that it must, returns to idle, and repeats itself exactly. 10,000 requests once; then
// HEADRACE_SEEDS (200) runs of two minutes or more on machines of random shape, with faults.
#include "simulate/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <tuple>

#include "base/random.h"

namespace headrace {
namespace {

void ExpectNothingLost(const SimulationOptions& o, const SimulationReport& r) {
  EXPECT_EQ(r.finished + r.cancelled + r.refused + r.expired + r.failed, o.requests) << "seed " << o.seed;
  EXPECT_EQ(r.lost, 0) << "seed " << o.seed;
  EXPECT_EQ(r.wrong_answers, 0) << "seed " << o.seed;
  EXPECT_EQ(r.kv_blocks_left_in_use, 0) << "seed " << o.seed;
}

TEST(SimulationTest, TenThousandRequestsHoldEveryInvariantAndRepeatExactly) {
  SimulationOptions options{.seed = 7,
                            .requests = 10'000,
                            .requests_per_second = 12,
                            .memory_tier_blocks = 50,
                            .disk_tier_blocks = 300,
                            .damaged_share = 0.01};
  const auto first = RunSimulation(options);
  ASSERT_TRUE(first) << first.error().message;
  ExpectNothingLost(options, *first);
  EXPECT_GT(first->preemptions, 0u) << "the run is meant to overcommit the pool";
  EXPECT_GT(first->finished, 8000);
  EXPECT_GT(first->prefix_hit_tokens * 10, first->prefix_asked_tokens) << "the run is meant to share prefixes";
  EXPECT_GT(first->prefix_evictions, 10'000u);
  options.check = false;
  const auto second = RunSimulation(options);
  EXPECT_EQ(second->trace_hash, first->trace_hash);
  EXPECT_EQ(second->virtual_time, first->virtual_time);
  options.seed = 8;
  EXPECT_NE(RunSimulation(options)->trace_hash, first->trace_hash);
}

// A machine and traffic of any shape: idle to overloaded, a pool that holds everything or hardly one request, steps of
// 5 to 80 ms, and faults of all kinds.
SimulationOptions AnyShape(uint64_t seed) {
  Random random(seed + 1000);
  SimulationOptions o{.seed = seed, .faults = kBadDay};
  o.step_us = 5000 + static_cast<int64_t>(random.Below(75'000));
  o.requests_per_second = 0.5 + 3 * random.Uniform();
  o.requests = static_cast<int>(o.requests_per_second * 180);
  o.kv_blocks = 13 + static_cast<int32_t>(random.Below(100));
  o.sequences_max = 1 + static_cast<int32_t>(random.Below(20));
  o.batch_tokens_max = 1 + static_cast<int32_t>(random.Below(200));
  o.shared_tokens_max = random.Below(2) == 0 ? 0 : 1 + static_cast<int32_t>(random.Below(100));
  o.waiting_max = static_cast<int32_t>(random.Below(100));
  o.faults.cancel = random.Uniform() / 2;
  o.queue_timeout_s = random.Below(4) == 0 ? 0 : 0.1 + 30 * random.Uniform();
  o.request_timeout_s = random.Below(4) == 0 ? 20 * random.Uniform() : 0;
  o.shared_share = static_cast<double>(random.Below(3)) / 2;
  o.prefix_cache = random.Below(4) != 0;
  if (random.Below(2) == 0) {
    o.drafts_max = 1 + static_cast<int32_t>(random.Below(15));
    o.letters = 1 + static_cast<int32_t>(random.Below(4));
    o.row_us = static_cast<int64_t>(random.Below(600));
  }
  if (random.Below(2) == 0) o.memory_tier_blocks = 1 + static_cast<int32_t>(random.Below(300));
  if (random.Below(2) == 0) o.disk_tier_blocks = 1 + static_cast<int32_t>(random.Below(300));
  o.disk_us_per_block = static_cast<int64_t>(random.Below(20'000));
  o.damaged_share = random.Below(3) == 0 ? 0.05 : 0;
  o.room_ahead = random.Below(2) == 0;
  return o;
}

TEST(SimulationTest, ManySeedsOnMachinesOfRandomShapeWithFaults) {
  const char* seeds = std::getenv("HEADRACE_SEEDS");
  const uint64_t count = seeds != nullptr ? std::strtoull(seeds, nullptr, 10) : 200;
  SimulationReport all;
  int short_runs = 0;
  for (uint64_t seed = 0; seed < count; ++seed) {
    const SimulationOptions o = AnyShape(seed);
    const auto report = RunSimulation(o);
    ASSERT_TRUE(report) << report.error().message;
    ExpectNothingLost(o, *report);
    short_runs += report->virtual_time < 120 * kNsPerSecond ? 1 : 0;
    all.virtual_time += report->virtual_time;
    all.steps += report->steps;
    all.finished += report->finished;
    all.expired += report->expired;
    all.refused += report->refused;
    all.failed += report->failed;
    all.preemptions += report->preemptions;
    for (int state = 0; state < kRequestStates; ++state) all.cancelled_in[state] += report->cancelled_in[state];
  }
  std::printf("%.0f s, %llu steps: %d finished, %d expired, %d refused, %d failed, %llu preemptions\n",
              static_cast<double>(all.virtual_time) / 1e9, static_cast<unsigned long long>(all.steps), all.finished,
              all.expired, all.refused, all.failed, static_cast<unsigned long long>(all.preemptions));
  EXPECT_EQ(short_runs, 0) << "each is meant to last two minutes of virtual time";
  if (count < 50) return;
  for (int state = 0; state < kRequestStates; ++state) EXPECT_GT(all.cancelled_in[state], 20) << "state " << state;
  EXPECT_GT(all.failed, 20);
  EXPECT_GT(all.expired, 20);
  EXPECT_GT(all.preemptions, 500u);
}

TEST(SimulationTest, WhatIsCancelledIsComputedNoFurther) {
  SimulationOptions o{.seed = 4, .requests = 600, .requests_per_second = 5, .faults = {.cancel = 0.5}};
  const auto report = RunSimulation(o);
  ASSERT_TRUE(report);
  EXPECT_GT(report->cancelled, 100);
  EXPECT_EQ(report->dropped, static_cast<uint64_t>(report->cancelled));
}

TEST(SimulationTest, FaultsRepeatToo) {
  const SimulationOptions o = AnyShape(3);
  const auto first = RunSimulation(o), second = RunSimulation(o);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->trace_hash, second->trace_hash);
  EXPECT_EQ(first->virtual_time, second->virtual_time);
}

// Shared blocks change when a request is answered, never what: the scripted executor draws from what its blocks hold.
TEST(SimulationTest, TheCacheChangesNoAnswerAndSavesWhatItHits) {
  SimulationOptions o{.seed = 5, .requests = 1500, .requests_per_second = 8, .faults = {}, .waiting_max = 1500};
  o.queue_timeout_s = 1e6;
  o.shared_share = 0.8;
  const auto with = RunSimulation(o);
  o.prefix_cache = false;
  const auto without = RunSimulation(o);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->answers_hash, without->answers_hash);
  EXPECT_EQ(with->finished, 1500);
  EXPECT_EQ(without->prefix_hit_tokens, 0u);
  std::printf("asked for %llu prompt tokens, %llu from the cache; rows %llu, without the cache %llu\n",
              static_cast<unsigned long long>(with->prefix_asked_tokens),
              static_cast<unsigned long long>(with->prefix_hit_tokens), static_cast<unsigned long long>(with->rows),
              static_cast<unsigned long long>(without->rows));
  EXPECT_LT(with->rows + with->prefix_hit_tokens * 9 / 10, without->rows);
}

// Drafts change how many steps an answer takes, never what it is.
TEST(SimulationTest, DraftsChangeNoAnswerAndSaveSteps) {
  SimulationOptions o{.seed = 5, .requests = 1000, .requests_per_second = 8, .faults = {}, .waiting_max = 1000};
  o.queue_timeout_s = 1e6;
  o.row_us = 300;
  o.letters = 2;
  const auto without = RunSimulation(o);
  o.drafts_max = 8;
  const auto with = RunSimulation(o);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->answers_hash, without->answers_hash);
  EXPECT_EQ(with->finished, 1000);
  EXPECT_EQ(without->drafted_tokens, 0u);
  EXPECT_GT(with->accepted_tokens, 1000u);
  EXPECT_LT(with->steps, without->steps);
  EXPECT_LT(with->virtual_time, without->virtual_time * 101 / 100);
  std::printf("drafted %llu, accepted %llu; steps %llu, without drafts %llu\n",
              static_cast<unsigned long long>(with->drafted_tokens),
              static_cast<unsigned long long>(with->accepted_tokens), static_cast<unsigned long long>(with->steps),
              static_cast<unsigned long long>(without->steps));
}

// The same below the pool, where a wrong block would change an answer, and damage only costs time.
TEST(SimulationTest, TiersChangeNoAnswerAndSaveWhatTheyRestore) {
  SimulationOptions o{.seed = 5, .requests = 1500, .requests_per_second = 8, .waiting_max = 1500};
  o.faults.cancel = 0;
  o.queue_timeout_s = 1e6;
  o.shared_share = 0.8;
  o.kv_blocks = 48;
  const auto pool = RunSimulation(o);
  ASSERT_TRUE(pool);
  const std::tuple<int32_t, int32_t, double> cases[] = {{400, 0, 0}, {0, 2000, 0}, {100, 2000, 0}, {50, 2000, 0.02}};
  for (const auto& [memory, disk, damaged] : cases) {
    o.memory_tier_blocks = memory;
    o.disk_tier_blocks = disk;
    o.damaged_share = damaged;
    const auto tiers = RunSimulation(o);
    ASSERT_TRUE(tiers);
    EXPECT_EQ(tiers->answers_hash, pool->answers_hash);
    EXPECT_EQ(tiers->finished, 1500);
    EXPECT_GT(tiers->restored_blocks, 100u);
    EXPECT_EQ(tiers->damaged_blocks > 0, damaged > 0);
    EXPECT_LT(tiers->prompt_tokens, pool->prompt_tokens);
    std::printf("%d blocks in memory, %d on disk, damage %.2f: %llu restored, %llu prompt tokens (pool alone %llu)\n",
                memory, disk, damaged, static_cast<unsigned long long>(tiers->restored_blocks),
                static_cast<unsigned long long>(tiers->prompt_tokens),
                static_cast<unsigned long long>(pool->prompt_tokens));
  }
}

TEST(SimulationTest, NothingSharedCostsNothing) {
  SimulationOptions o{.seed = 6, .requests = 1500, .requests_per_second = 8, .shared_share = 0};
  const auto with = RunSimulation(o);
  o.prefix_cache = false;
  const auto without = RunSimulation(o);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->prefix_hit_tokens, 0u);
  // What a preempted sequence had computed may still be there, so it is less work, never more.
  EXPECT_LE(static_cast<double>(with->rows), 1.01 * static_cast<double>(without->rows));
  EXPECT_LE(static_cast<double>(with->steps), 1.01 * static_cast<double>(without->steps));
  EXPECT_LE(static_cast<double>(with->virtual_time), 1.01 * static_cast<double>(without->virtual_time));
}

TEST(SimulationTest, FasterThanTheClockOnTheWall) {
  // No gate on wall-clock time; the figure is printed for the campaign.
  SimulationOptions options{.seed = 3, .requests = 3000, .check = false};
  const auto begin = std::chrono::steady_clock::now();
  const auto report = RunSimulation(options);
  const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  ASSERT_TRUE(report);
  std::printf("simulated %.0f s in %.2f s: %.0f x real time, %.2f us a step\n",
              static_cast<double>(report->virtual_time) / 1e9, wall,
              static_cast<double>(report->virtual_time) / 1e9 / wall, wall * 1e6 / static_cast<double>(report->steps));
}

}  // namespace
}  // namespace headrace
