// Goal: laws of the line on virtual time, with the whole engine below: who has few requests is served as if others had
// few, tenants get what their weights say, bands and deadlines hold, short work goes first, what expires does so in
// time and what is cancelled costs nothing more.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/random.h"
#include "scheduler/scheduler.h"
#include "simulate/virtual_world.h"
#include "stats/summary.h"

namespace headrace {
namespace {

constexpr TimeNs kMs = kNsPerMs;
const EngineOptions kManyWait{.waiting_max = 20'000};

RecordedRequest Asking(uint64_t tenant, int64_t prompt, int64_t output, Band band = Band::kNormal) {
  return {.tenant = tenant, .band = static_cast<int32_t>(band), .prompt_tokens = prompt, .output_tokens = output};
}

EngineOptions FirstCome() {
  EngineOptions options = kManyWait;
  options.order = QueueOrder::kFirstCome;
  return options;
}

struct Backlog {
  double jain = 0;               // of the tokens that each got while both had work, by weight
  double tokens_per_second = 0;  // until all was done
};

// Tenant 1 has ten requests for each of tenant 2, all at once.
Backlog RunBacklog(double weight_of_second, const EngineOptions& options) {
  VirtualWorld world({}, options);
  Random random(3);
  for (int i = 0; i < 2200; ++i)
    world.Add(i, Asking(i % 11 == 0 ? 2 : 1, 200 + static_cast<int64_t>(random.Below(1600)),
                        20 + static_cast<int64_t>(random.Below(60))));
  const std::vector<RequestResult>& results = world.Run([&](size_t i, EngineRequest& request) {
    if (world.requests()[i].tenant == 2) request.place.weight = weight_of_second;
  });
  TimeNs until = 0;
  double all = 0;
  std::map<uint64_t, double> got;
  for (const RequestResult& r : results) {
    all += static_cast<double>(r.prompt_tokens + r.output_tokens);
    if (r.tenant == 2) until = std::max(until, r.first_token);
  }
  for (const RequestResult& r : results)
    if (r.first_token <= until) got[r.tenant] += static_cast<double>(r.prompt_tokens + r.output_tokens);
  const std::vector<double> shares = {got[1], got[2] / weight_of_second};
  return {JainIndex(shares), all / (static_cast<double>(world.virtual_time) / kNsPerSecond)};
}

TEST(FairnessTest, TwoBackloggedTenantsShareByWeight) {
  const Backlog first_come = RunBacklog(1, FirstCome());
  EXPECT_LT(first_come.jain, 0.7) << "the test is meant to be unfair without the queue";
  for (const double weight : {1.0, 3.0}) {
    const Backlog fair = RunBacklog(weight, kManyWait);
    std::printf("weight %.0f: Jain %.4f, %.0f tokens/s; first come %.4f, %.0f tokens/s\n", weight, fair.jain,
                fair.tokens_per_second, first_come.jain, first_come.tokens_per_second);
    EXPECT_GE(fair.jain, 0.95) << weight;
    EXPECT_GE(fair.tokens_per_second, 0.97 * first_come.tokens_per_second) << weight;
  }
}

// Twenty tenants that together use 70 % of the machine's 17.6 requests a second; the first asks `times` as often. The
// p99 of the others' time to first token.
double OthersP99(double times) {
  VirtualWorld world({}, {.waiting_max = 500});
  Random random(4);
  for (uint64_t tenant = 1; tenant <= 20; ++tenant) {
    const double rate = 17.6 * 0.7 / 20 * (tenant == 1 ? times : 1);
    for (double at = 0; (at += -std::log(1 - random.Uniform()) / rate) < 300;) {
      const auto prompt = 200 + static_cast<int64_t>(random.Below(1600));
      world.Add(static_cast<TimeNs>(at * kNsPerSecond),
                Asking(tenant, prompt, 20 + static_cast<int64_t>(random.Below(60))));
    }
  }
  const std::vector<RequestResult>& results =
      world.Run([](size_t, EngineRequest& request) { request.place.tenant_waiting_limit = 200; });
  std::vector<double> others;
  for (const RequestResult& r : results) {
    if (r.tenant == 1) continue;
    EXPECT_EQ(r.outcome, Outcome::kFinished);
    others.push_back(static_cast<double>(r.first_token - r.arrival) / kMs);
  }
  return Describe(others).p99;
}

// Without a limit of its own: it may fill no more of the line than leaves the others their places.
TEST(FairnessTest, AFloodRefusesNobodyElse) {
  VirtualWorld world({}, {.waiting_max = 64});
  Random random(6);
  for (uint64_t tenant = 1; tenant <= 10; ++tenant) {
    const double rate = tenant == 1 ? 100 : 1;
    for (double at = 0; (at += -std::log(1 - random.Uniform()) / rate) < 60;)
      world.Add(static_cast<TimeNs>(at * kNsPerSecond), Asking(tenant, 400, 20));
  }
  int refused[2] = {}, asked[2] = {};
  for (const RequestResult& r : world.Run()) {
    ++asked[r.tenant == 1];
    if (r.outcome != Outcome::kFinished) ++refused[r.tenant == 1];
  }
  EXPECT_GT(refused[1], 2000) << "the test is meant to overload the machine";
  EXPECT_EQ(refused[0], 0) << "of " << asked[0];
}

// Against the same tenant when it uses its share all the time. When it does not, the others find an idle machine.
TEST(FairnessTest, AHundredTimesItsShareGainsATenantNothing) {
  const double all_of_its_share = OthersP99(12), flood = OthersP99(100);
  std::printf(
      "others' p99 of TTFT beside a tenant that asks as often as all: %.0f ms; that uses its share: %.0f ms; "
      "that asks a hundred times as often: %.0f ms\n",
      OthersP99(1), all_of_its_share, flood);
  EXPECT_LE(flood, 1.2 * all_of_its_share);
}

// While tenant 1 has work for minutes, tenant 2 comes after a minute, with as much work.
TEST(FairnessTest, WhoWasIdleGetsNoMoreThanItsShare) {
  VirtualWorld world({}, kManyWait);
  for (int i = 0; i < 3000; ++i) world.Add(0, Asking(1, 1000, 1));
  for (int i = 0; i < 1000; ++i) world.Add(60 * kNsPerSecond, Asking(2, 1000, 1));
  int before = 0, both[3] = {};
  for (const RequestResult& r : world.Run()) {
    const TimeNs at = r.first_token - kVirtualStart;
    if (at < 60 * kNsPerSecond) ++before;
    if (at > 61 * kNsPerSecond && at < 75 * kNsPerSecond) ++both[r.tenant];
  }
  EXPECT_GT(before, 1000);
  EXPECT_NEAR(both[1], both[2], 0.05 * both[1]);
}

TEST(FairnessTest, ALongPromptDelaysOthersByATurn) {
  VirtualWorld world({}, kManyWait);
  for (int i = 0; i < 5; ++i) world.Add(0, Asking(1, 100'000, 1));
  for (int i = 1; i <= 20; ++i) world.Add(i * kNsPerSecond, Asking(2, 1000, 1));
  for (const RequestResult& r : world.Run())
    if (r.tenant == 2) EXPECT_LE(r.first_token - r.arrival, 340 * kMs) << "three steps of 2,048 tokens";
}

TEST(FairnessTest, UrgentBandsDoNotSeeOthers) {
  VirtualWorld world({}, kManyWait);
  for (int i = 0; i < 500; ++i) world.Add(0, Asking(1, 4000, 50, Band::kBatch));
  for (int i = 1; i <= 50; ++i) world.Add(i * kNsPerSecond, Asking(2, 1000, 10, Band::kCritical));
  for (const RequestResult& r : world.Run())
    if (r.tenant == 2) EXPECT_LE(r.first_token - r.arrival, 250 * kMs);
}

TEST(FairnessTest, EarlierDeadlinesAndShorterWorkGoFirst) {
  VirtualWorld world({.sequences_max = 4}, kManyWait);
  for (int i = 0; i < 40; ++i) world.Add(i, Asking(1, 2000, 20));
  const std::vector<RequestResult> by_deadline = world.Run([](size_t i, EngineRequest& request) {
    request.place.deadline = kVirtualStart + 60 * kNsPerSecond - static_cast<TimeNs>(i) * kNsPerSecond;
  });
  // The first ones began before the others came.
  for (size_t i = 9; i < 40; ++i) EXPECT_LT(by_deadline[i].first_token, by_deadline[i - 1].first_token) << i;

  VirtualWorld mixed({.sequences_max = 4}, kManyWait);
  for (int i = 0; i < 100; ++i) mixed.Add(i, Asking(1, i % 2 == 0 ? 10'000 : 100, 4));
  double longs = 0, shorts = 0;
  for (const RequestResult& r : mixed.Run())
    (r.prompt_tokens > 1000 ? longs : shorts) += static_cast<double>(r.first_token - r.arrival);
  EXPECT_LT(shorts, 0.5 * longs);
}

TEST(FairnessTest, WhatWaitsTooLongEndsInTime) {
  VirtualWorld world({.sequences_max = 4}, kManyWait);
  for (int i = 0; i < 200; ++i) world.Add(i * 10 * kMs, Asking(1, 2000, 20));
  const std::vector<RequestResult>& results = world.Run([&](size_t i, EngineRequest& request) {
    const TimeNs now = kVirtualStart + world.requests()[i].arrival_us * kNsPerUs;
    (i % 2 == 0 ? request.place.start_before : request.place.deadline) = now + 3 * kNsPerSecond;
  });
  int expired = 0;
  for (const RequestResult& r : results) {
    if (r.outcome == Outcome::kFinished) {
      EXPECT_LE(r.first_token - r.arrival, 3500 * kMs);
    } else if (r.outcome == Outcome::kExpired) {  // others were told at the door
      ++expired;
      EXPECT_GE(r.end - r.arrival, 3 * kNsPerSecond);
      EXPECT_LE(r.end - r.arrival, 3 * kNsPerSecond + 250 * kMs) << "a step, and the next one's begin";
    }
  }
  EXPECT_GT(expired, 30);
}

// A batch answer and a newer, more urgent one outgrow the pool together: the batch answer gives way, though it is
// older.
TEST(FairnessTest, WhoIsLessUrgentGivesWay) {
  Scheduler scheduler({.context = 1024,
                       .batch_tokens_max = 128,
                       .logit_rows_max = 4,
                       .sequences_max = 4,
                       .waiting_max = 4,
                       .room_ahead = false},
                      8);
  BatchPlan plan;
  scheduler.ReservePlan(&plan);
  const auto step = [&] {
    scheduler.Plan(&plan);
    scheduler.CheckIntegrity();
    for (const PlannedSpan& span : plan.spans) scheduler.Advance(span, span.samples);
  };
  const int32_t batch = *scheduler.Add({.prompt_tokens = 60, .max_tokens = 400, .place = {.band = Band::kBatch}});
  step();
  const int32_t normal = *scheduler.Add({.prompt_tokens = 60, .max_tokens = 400});
  for (int i = 0; i < 420 && scheduler.preemptions() == 0; ++i) step();
  EXPECT_EQ(plan.preempted, std::vector{batch});
  EXPECT_TRUE(scheduler.Decodes(normal));
}

}  // namespace
}  // namespace headrace
