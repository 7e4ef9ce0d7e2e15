// Goal: a verdict for each limit, refusals at once, a prediction that holds, and a Retry-After that is the truth: the
// client that comes back then is let in.
#include "queueing/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <deque>

#include "base/random.h"

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr TimeNs kS = kNsPerSecond;
constexpr ServiceRates kRates{.tokens_per_second = 1000, .starts_per_second = 10, .free_places = 0, .step = kNsPerMs};

TEST(AdmissionTest, PredictsFromWorkPlacesAndSteps) {
  EXPECT_EQ(PredictTtft({}, 500, {}), 0) << "nothing measured";
  EXPECT_EQ(PredictTtft({.tokens = 2000, .requests = 4}, 500, {.tokens_per_second = 1000, .free_places = 9}),
            5 * kS / 2);
  EXPECT_EQ(PredictTtft({.tokens = 100, .requests = 19}, 500, kRates), 2 * kS + kS / 2) << "places are the shortage";
  EXPECT_EQ(PredictTtft({}, 0, {.tokens_per_second = 1000, .free_places = 1, .step = 7}), 7);
  EXPECT_LE(PredictTtft({.tokens = INT64_MAX, .requests = 1}, INT64_MAX, {.tokens_per_second = 1e-9}), 2 * 86'400 * kS);
}

TEST(AdmissionTest, EachLimitHasItsVerdictAndItsError) {
  WaitingQueue line(32);
  Admission admission({.waiting_max = 6, .band_waiting_max = {6, 6, 4, 2}});
  const auto judge = [&](QueueSpec spec) { return admission.Judge(line, spec, kRates, kS, 7); };
  QueueSpec batch{.tenant = 1, .band = Band::kBatch, .remaining_tokens = 100};
  EXPECT_EQ(judge(batch).verdict, Verdict::kAdmit);
  EXPECT_EQ(judge(batch).retry_after, 0);
  line.Add(0, batch);
  line.Add(1, batch);
  EXPECT_EQ(judge(batch).verdict, Verdict::kBandFull);
  batch.tenant_waiting_limit = 2;
  const AdmissionAnswer limited = judge(batch);
  EXPECT_EQ(limited.verdict, Verdict::kKeyLimit);
  EXPECT_EQ(RefusalError(limited, batch, kS).code, ErrorCode::kRateLimited);
  QueueSpec normal{.tenant = 1, .remaining_tokens = 100, .tenant_waiting_limit = 2};
  EXPECT_EQ(judge(normal).verdict, Verdict::kKeyLimit) << "over all bands";
  normal.tenant = 2;
  EXPECT_EQ(judge(normal).verdict, Verdict::kAdmit);
  normal.tenant_waiting_limit = 0;
  for (int32_t slot = 2; slot < 6; ++slot) line.Add(slot, normal);
  EXPECT_EQ(judge(normal).verdict, Verdict::kFull);
  EXPECT_EQ(judge({.band = Band::kCritical}).verdict, Verdict::kFull);
  const Error full = RefusalError(judge(normal), normal, kS);
  EXPECT_EQ(full.code, ErrorCode::kOverloaded);
  EXPECT_GT(full.retry_after_ms, 0);
  line.Begin(5);
  EXPECT_EQ(judge({.band = Band::kCritical}).verdict, Verdict::kAdmit);
}

TEST(AdmissionTest, WhatWouldMissItsDeadlineIsRefusedAtOnce) {
  WaitingQueue line(8);
  Admission admission(DefaultAdmissionLimits(8));
  ServiceRates rates = kRates;
  rates.free_places = 4;
  line.Add(0, {.tenant = 1, .band = Band::kCritical, .remaining_tokens = 3000});
  QueueSpec spec{.tenant = 2, .remaining_tokens = 1000, .deadline = 6 * kS};
  EXPECT_EQ(admission.Judge(line, spec, rates, kS, 0).verdict, Verdict::kAdmit) << "4 s of work, 5 s to go";
  spec.deadline = 4 * kS;
  const AdmissionAnswer late = admission.Judge(line, spec, rates, kS, 0);
  EXPECT_EQ(late.verdict, Verdict::kTooLate);
  EXPECT_EQ(late.retry_after, kS) << "as long as the line needs to be short enough";
  EXPECT_THAT(RefusalError(late, spec, kS).message, HasSubstr("4000 ms"));
  spec.deadline = kS + kS / 2;
  const AdmissionAnswer never = admission.Judge(line, spec, rates, kS, 0);
  EXPECT_EQ(never.verdict, Verdict::kNeverInTime);
  EXPECT_EQ(RefusalError(never, spec, kS).retry_after_ms, 0) << "coming back would not help";
  spec.deadline = kS;
  EXPECT_NE(admission.Judge(line, spec, {}, kS, 0).verdict, Verdict::kAdmit) << "past, whatever was measured";
}

TEST(AdmissionTest, JitterOnlyAdds) {
  WaitingQueue line(4);
  Random random(4);
  for (int i = 0; i < 1000; ++i) {
    Admission admission({.waiting_max = 0});
    const TimeNs bare = admission.Judge(line, {}, kRates, 5, 0).retry_after;
    Admission same({.waiting_max = 0});
    const TimeNs with = same.Judge(line, {}, kRates, 5, random.Next()).retry_after;
    ASSERT_GE(with, bare);
    ASSERT_LT(with, bare + kS);
  }
}

TEST(AdmissionTest, ComingBackEarlyNeitherHelpsNorLosesThePromise) {
  WaitingQueue line(8);
  Admission admission({.waiting_max = 1, .band_waiting_max = {1, 1, 1, 1}});
  line.Add(0, {.remaining_tokens = 100});
  const QueueSpec eager{.remaining_tokens = 100, .fingerprint = 5};
  const TimeNs told = admission.Judge(line, eager, kRates, kS, 0).retry_after;
  const TimeNs last = kS + told;
  for (TimeNs now = kS; now < last - kLeastRetryAfter; now += 10 * kNsPerMs)
    ASSERT_EQ(now + admission.Judge(line, eager, kRates, now, 0).retry_after, last);
  EXPECT_LE(admission.Judge(line, {.remaining_tokens = 100, .fingerprint = 6}, kRates, kS, 0).retry_after, 2 * told)
      << "nor does it push others back";
  line.Remove(0);
  EXPECT_EQ(admission.Judge(line, {.remaining_tokens = 100}, kRates, last, 0).verdict, Verdict::kFull) << "it is held";
  EXPECT_EQ(admission.Judge(line, eager, kRates, last, 0).verdict, Verdict::kAdmit);
  EXPECT_EQ(admission.Judge(line, {}, kRates, last, 0).verdict, Verdict::kAdmit) << "held no longer";
  EXPECT_EQ(admission.Judge(line, {}, kRates, last + told, 0).verdict, Verdict::kFull) << "6 is due";
  EXPECT_EQ(admission.Judge(line, {}, kRates, last + 2 * told + kPromiseGrace, 0).verdict, Verdict::kAdmit)
      << "nobody waits for who does not come";
}

// As many of a tenant as get in, one after the other.
int32_t Fill(const Admission& admission, WaitingQueue& line, uint64_t tenant, int32_t* slot) {
  Admission judge = admission;
  int32_t in = 0;
  while (judge.Judge(line, {.tenant = tenant, .remaining_tokens = 100}, kRates, kS, 0).verdict == Verdict::kAdmit) {
    line.Add((*slot)++, {.tenant = tenant, .remaining_tokens = 100});
    ++in;
  }
  return in;
}

TEST(AdmissionTest, AFloodLeavesPlacesToOtherTenants) {
  const AdmissionLimits limits = DefaultAdmissionLimits(64);
  Admission admission(limits);
  const auto verdict = [&](const WaitingQueue& line, uint64_t tenant) {
    return admission.Judge(line, {.tenant = tenant, .remaining_tokens = 100}, kRates, kS, 0).verdict;
  };
  WaitingQueue line(limits.places());
  int32_t slot = 0;
  EXPECT_EQ(Fill(admission, line, 1, &slot), 64) << "alone a tenant has all places that were asked for";
  EXPECT_EQ(verdict(line, 1), Verdict::kBandFull);
  line.Add(slot++, {.tenant = 2, .remaining_tokens = 100});
  const AdmissionAnswer part = admission.Judge(line, {.tenant = 1, .remaining_tokens = 100}, kRates, kS, 0);
  EXPECT_EQ(part.verdict, Verdict::kTenantPart);
  EXPECT_EQ(RefusalError(part, {}, kS).code, ErrorCode::kRateLimited);
  EXPECT_GT(part.retry_after, 0);
  EXPECT_GE(Fill(admission, line, 2, &slot), 5);
  EXPECT_EQ(Fill(admission, line, 3, &slot), 1) << "and a third finds one";
  EXPECT_EQ(verdict(line, 1), Verdict::kBandFull);

  WaitingQueue floods(limits.places());
  slot = 0;
  for (bool more = true; more;) {  // two at once, in turns
    more = false;
    for (uint64_t tenant : {1, 2}) {
      if (verdict(floods, tenant) != Verdict::kAdmit) continue;
      floods.Add(slot++, {.tenant = tenant, .remaining_tokens = 100});
      more = true;
    }
  }
  EXPECT_EQ(verdict(floods, 3), Verdict::kAdmit);
  EXPECT_NEAR(floods.waiting_of(1), floods.waiting_of(2), 1);
}

TEST(AdmissionTest, APlaceIsHeldFromItsOwnTenantOnly) {
  const AdmissionLimits limits = DefaultAdmissionLimits(4);
  Admission admission(limits);
  WaitingQueue line(limits.places());
  for (int32_t slot = 0; slot < 4; ++slot) line.Add(slot, {.tenant = 1, .remaining_tokens = 100});
  TimeNs last = 0;
  for (uint64_t caller = 1; caller <= 4; ++caller) {
    const QueueSpec refused{.tenant = 1, .remaining_tokens = 100, .fingerprint = caller};
    last = kS + admission.Judge(line, refused, kRates, kS, 0).retry_after;
  }
  line.Remove(0);
  EXPECT_NE(admission.Judge(line, {.tenant = 1}, kRates, last, 0).verdict, Verdict::kAdmit) << "held for a caller";
  EXPECT_EQ(admission.Judge(line, {.tenant = 2}, kRates, last, 0).verdict, Verdict::kAdmit);
}

TEST(AdmissionTest, SheddingSparesWhoHoldsLittle) {
  const AdmissionLimits limits = DefaultAdmissionLimits(64);
  Admission admission(limits);
  WaitingQueue line(limits.places());
  const auto verdict = [&](uint64_t tenant) {
    return admission.Judge(line, {.tenant = tenant, .remaining_tokens = 100}, kRates, kS, 0, true).verdict;
  };
  EXPECT_EQ(verdict(1), Verdict::kShed);
  for (int32_t slot = 0; slot < 20; ++slot) line.Add(slot, {.tenant = 1, .remaining_tokens = 100});
  EXPECT_EQ(verdict(1), Verdict::kShed);
  EXPECT_EQ(verdict(2), Verdict::kAdmit) << "the line is not of its making";
  for (int32_t slot = 20; slot < 40; ++slot) line.Add(slot, {.tenant = 2, .remaining_tokens = 100});
  EXPECT_EQ(verdict(2), Verdict::kShed);
}

TEST(AdmissionTest, DefaultCapsLeaveRoomForUrgentBands) {
  EXPECT_EQ(DefaultAdmissionLimits(64).band_waiting_max, (std::array{80, 80, 64, 32}));
  EXPECT_EQ(DefaultAdmissionLimits(1).band_waiting_max, (std::array{2, 2, 1, 1}));
  EXPECT_EQ(DefaultAdmissionLimits(0).band_waiting_max, (std::array{0, 0, 0, 0}));
}

// Clients of a full server that come back exactly when they were told; the line drains at the rates that were measured.
struct Clients {
  struct Client {
    uint64_t name = 0;
    TimeNs back_at = 0;
    int refusals = 0;
  };
  explicit Clients(const AdmissionLimits& limits, TimeNs time_allowed) : admission(limits), allowed(time_allowed) {
    for (int32_t slot = 63; slot >= 0; --slot) free.push_back(slot);
  }
  bool Try(Client& client) {
    const QueueSpec spec{.tenant = 1,
                         .remaining_tokens = 100,
                         .arrival = now,
                         .deadline = allowed == kNever ? kNever : now + allowed,
                         .fingerprint = client.name};
    const AdmissionAnswer answer = admission.Judge(line, spec, rates, now, random.Next());
    if (answer.verdict == Verdict::kAdmit) {
      line.Add(free.back(), spec);
      free.pop_back();
      return true;
    }
    ++client.refusals;
    client.back_at = now + answer.retry_after;
    return false;
  }
  void Tick() {  // 10 ms: a tenth of a request
    now += 10 * kNsPerMs;
    const int32_t slot = line.First();
    if (slot < 0) return;
    left = left > 0 ? left : 100;
    left -= 10;
    line.SetRemaining(slot, std::max<int64_t>(left, 1));
    if (left > 0) return;
    line.Remove(slot);
    free.push_back(slot);
  }

  Admission admission;
  const TimeNs allowed;
  ServiceRates rates{.tokens_per_second = 1000, .starts_per_second = 10, .free_places = 0, .step = kNsPerMs};
  WaitingQueue line{64};
  std::vector<int32_t> free;
  Random random{9};
  TimeNs now = kS;
  int64_t left = 0;
};

void ExpectHonest(Clients clients, int count) {
  std::vector<Clients::Client> away;
  int admitted = 0, refused = 0;
  for (int i = 0; i < count; ++i) {
    Clients::Client client{.name = clients.random.Next() | 1};
    if (clients.Try(client)) {
      ++admitted;
    } else {
      away.push_back(client);
    }
  }
  refused = static_cast<int>(away.size());
  ASSERT_GT(admitted, 0);
  ASSERT_GT(refused, 4);
  int again = 0;
  for (int tick = 0; tick < 10'000 && !away.empty(); ++tick) {
    clients.Tick();
    std::erase_if(away, [&](Clients::Client& client) {
      if (client.back_at > clients.now) return false;
      const bool in = clients.Try(client);
      again += in ? 0 : 1;
      return in;
    });
  }
  std::printf("%d admitted, %d refused and told when to come: %d of them refused again\n", admitted, refused, again);
  EXPECT_TRUE(away.empty());
  EXPECT_EQ(again, 0);
}

TEST(AdmissionTest, WhoComesBackWhenToldToIsLetIn) {
  ExpectHonest(Clients({.waiting_max = 16, .band_waiting_max = {16, 16, 16, 16}}, kNever), 40);
  ExpectHonest(Clients({.waiting_max = 64, .band_waiting_max = {64, 64, 64, 64}}, 2 * kS), 30);
}

// Newcomers take places, too: half as many again as the machine serves, for a minute.
TEST(AdmissionTest, UnderOverloadMostWhoComeBackAreLetIn) {
  Clients clients({.waiting_max = 16, .band_waiting_max = {16, 16, 16, 16}}, kNever);
  std::vector<Clients::Client> away;
  int newcomers = 0, admitted = 0, back = 0, back_in = 0;
  for (int tick = 0; tick < 6000; ++tick) {
    clients.Tick();
    std::erase_if(away, [&](Clients::Client& client) {
      if (client.back_at > clients.now) return false;
      ++back;
      const bool in = clients.Try(client);
      back_in += in ? 1 : 0;
      return in;
    });
    if (clients.random.Uniform() >= 0.15) continue;
    ++newcomers;
    Clients::Client client{.name = clients.random.Next() | 1};
    if (clients.Try(client)) {
      ++admitted;
    } else {
      away.push_back(client);
    }
  }
  std::printf("%d came, %d let in at once; %d came back, %d of them let in\n", newcomers, admitted, back, back_in);
  EXPECT_GE(back_in, 0.95 * back);
  EXPECT_GE(admitted + back_in, 580) << "places that are held cost the machine nothing: it serves 600";
}

}  // namespace
}  // namespace headrace
