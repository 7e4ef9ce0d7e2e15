// Goal: bands are strict; tenants share by weight whatever they offer; inside a tenant deadlines and then short work
// come first and nobody waits beyond the stated bound; what expired never runs; nothing allocates after construction.
#include "queueing/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <tuple>

#include "base/count_allocations.h"
#include "base/random.h"

namespace headrace {
namespace {

constexpr TimeNs kS = kNsPerSecond;

// A machine that computes `rows` prompt tokens in a step of 10 ms, in the order of the queue.
struct Machine {
  explicit Machine(int32_t slots, int64_t rows_a_step = 100, int64_t turn = kTurnTokens)
      : queue(slots, kAgeingTokensPerSecond, turn), rows(rows_a_step) {
    for (int32_t slot = slots - 1; slot >= 0; --slot) free.push_back(slot);
    expired.reserve(static_cast<size_t>(slots));
  }
  std::optional<int32_t> Offer(QueueSpec spec) {
    if (free.empty()) return std::nullopt;
    const int32_t slot = free.back();
    free.pop_back();
    spec.arrival = now;
    queue.Add(slot, spec);
    specs[slot] = spec;
    return slot;
  }
  void Step() {
    expired.clear();
    queue.Expired(now, &expired);
    for (int32_t slot : expired) Drop(slot);
    for (int64_t left = rows; left > 0 && queue.First() >= 0;) {
      const int32_t slot = queue.First();
      QueueSpec& spec = specs[slot];
      if (on_turn) on_turn(slot, spec);
      queue.Begin(slot);
      const int64_t take = std::min(left, spec.remaining_tokens);
      left -= take;
      spec.remaining_tokens -= take;
      served[spec.tenant] += take;
      queue.Charge(slot, take);
      queue.SetRemaining(slot, spec.remaining_tokens);
      if (spec.remaining_tokens > 0) continue;
      waits[spec.tenant].push_back(now - spec.arrival);
      queue.Leave(slot);
      Drop(slot);
    }
    now += 10 * kNsPerMs;
  }
  void Drop(int32_t slot) {
    queue.Remove(slot);
    free.push_back(slot);
  }

  WaitingQueue queue;
  const int64_t rows;
  TimeNs now = 1;
  std::vector<int32_t> free, expired;
  std::map<int32_t, QueueSpec> specs;
  std::map<uint64_t, int64_t> served;
  std::map<uint64_t, std::vector<TimeNs>> waits;
  std::function<void(int32_t slot, const QueueSpec& spec)> on_turn;
};

QueueSpec Work(uint64_t tenant, int64_t tokens) { return {.tenant = tenant, .remaining_tokens = tokens}; }

TEST(WaitingQueueTest, BandsAreStrictAndDeadlinesThenShortWorkComeFirst) {
  WaitingQueue queue(16);
  queue.Add(0, {.band = Band::kBatch, .remaining_tokens = 1});
  queue.Add(1, {.band = Band::kNormal, .remaining_tokens = 5000});
  queue.Add(2, {.band = Band::kNormal, .remaining_tokens = 50});
  queue.Add(3, {.band = Band::kNormal, .remaining_tokens = 9000, .deadline = 5 * kS});
  queue.Add(4, {.band = Band::kNormal, .remaining_tokens = 10, .deadline = 6 * kS});
  queue.Add(5, {.band = Band::kCritical, .remaining_tokens = 9000});
  queue.Add(6, {.band = Band::kHigh, .position = 3, .remaining_tokens = 1});
  queue.Add(7, {.band = Band::kHigh, .position = 2, .remaining_tokens = 9000});
  queue.CheckIntegrity();
  for (int32_t expected : {5, 7, 6, 3, 4, 2, 1, 0}) {
    ASSERT_EQ(queue.First(), expected);
    queue.Remove(expected);
    queue.CheckIntegrity();
  }
  EXPECT_EQ(queue.First(), -1);
}

TEST(WaitingQueueTest, WaitingOutweighsLength) {
  WaitingQueue queue(4);
  queue.Add(0, {.remaining_tokens = 5000, .arrival = 0});  // worth 10 s
  queue.Add(1, {.remaining_tokens = 10, .arrival = 9 * kS});
  EXPECT_EQ(queue.First(), 1);
  queue.Remove(1);
  queue.Add(1, {.remaining_tokens = 10, .arrival = 11 * kS});
  EXPECT_EQ(queue.First(), 0);
}

TEST(WaitingQueueTest, NamesOfPriorities) {
  constexpr Band kStandard = Band::kNormal;
  EXPECT_EQ(ChooseUrgency(0, "", kStandard, Band::kCritical), (Urgency{Band::kNormal, 0}));
  EXPECT_EQ(ChooseUrgency(-1, "", kStandard, Band::kHigh), (Urgency{Band::kHigh, 15}));
  EXPECT_EQ(ChooseUrgency(INT32_MIN, "", kStandard, Band::kHigh), (Urgency{Band::kHigh, 0}));
  EXPECT_EQ(ChooseUrgency(1, "auto", kStandard, Band::kHigh), (Urgency{Band::kBatch, 0}));
  EXPECT_EQ(ChooseUrgency(INT32_MAX, "", kStandard, Band::kHigh), (Urgency{Band::kBatch, 15}));
  EXPECT_EQ(ChooseUrgency(-9, "flex", kStandard, Band::kHigh), (Urgency{Band::kBatch, 0}));
  EXPECT_EQ(ChooseUrgency(-9, "", kStandard, Band::kNormal).band, Band::kNormal) << "the key's own band is the highest";
  EXPECT_EQ(ChooseUrgency(0, "priority", kStandard, Band::kCritical).band, Band::kHigh)
      << "critical comes from the key alone";
  EXPECT_EQ(ChooseUrgency(0, "", Band::kCritical, Band::kCritical).band, Band::kCritical);
  EXPECT_EQ(ChooseUrgency(-3, "", Band::kCritical, Band::kCritical), (Urgency{Band::kCritical, 13}));
  EXPECT_EQ(ChooseUrgency(2, "", Band::kCritical, Band::kCritical), (Urgency{Band::kBatch, 1}));
  EXPECT_EQ(ChooseUrgency(0, "", Band::kCritical, Band::kHigh).band, Band::kHigh);
  EXPECT_EQ(ServiceTierOf(Band::kCritical), "priority");
  EXPECT_EQ(ServiceTierOf(Band::kNormal), "default");
  EXPECT_EQ(ServiceTierOf(Band::kBatch), "flex");
}

TEST(WaitingQueueTest, NobodyOfATenantIsOvertakenByWhatArrivedAfterItsDueTime) {
  Random random(5);
  Machine machine(600);
  machine.on_turn = [&](int32_t chosen, const QueueSpec& spec) {
    for (const auto& [slot, other] : machine.specs) {
      if (slot == chosen || !machine.queue.Has(slot) || other.tenant != spec.tenant || other.band != spec.band)
        continue;
      const TimeNs due = machine.queue.DueOf(other);
      ASSERT_LE(spec.arrival, due) << slot << " is overtaken by " << chosen;
      ASSERT_LE(due, other.arrival + kDueSpan);
    }
  };
  for (int step = 0; step < 3000; ++step) {
    while (random.Below(3) > 0) {  // two arrivals a step, 1.2 x what is served
      QueueSpec spec = Work(random.Below(3), 1 + static_cast<int64_t>(random.Below(random.Below(50) == 0 ? 2000 : 80)));
      spec.band = static_cast<Band>(1 + random.Below(2));
      spec.position = static_cast<int32_t>(random.Below(kPositions));
      if (random.Below(4) == 0) spec.deadline = machine.now + static_cast<TimeNs>(random.Below(30)) * kS;
      spec.start_before = machine.now + 60 * kS;
      machine.Offer(spec);
    }
    machine.Step();
    if (step % 100 == 0) machine.queue.CheckIntegrity();
  }
}

TEST(WaitingQueueTest, ALongRequestBeginsAmongAnEndlessFlowOfShortOnes) {
  Machine machine(64);
  machine.Offer(Work(1, 4000));
  TimeNs finished = 0;
  while (finished == 0 && machine.now < 600 * kS) {
    while (machine.free.size() > 4) machine.Offer(Work(1, 20));
    machine.Step();
    if (machine.queue.Has(63) == false && machine.specs[0].remaining_tokens == 0) finished = machine.now;
    for (const auto& [slot, spec] : machine.specs) {
      if (spec.arrival == 1 && spec.remaining_tokens == 0) finished = machine.now;
    }
  }
  // Due after 10 s of slack and 8 s of work; what stood in line by then is 60 requests of 20 tokens.
  EXPECT_LE(finished, 20 * kS);
}

// Jain's index of what the tenants got per weight: 1 when equal, 1/n when one has all.
double Jain(const std::vector<double>& x) {
  double sum = 0, squares = 0;
  for (double v : x) {
    sum += v;
    squares += v * v;
  }
  return sum * sum / (static_cast<double>(x.size()) * squares);
}

TEST(WaitingQueueTest, BackloggedTenantsShareByWeightWhateverTheyOffer) {
  for (double weight : {1.0, 3.0}) {
    Random random(3);
    Machine machine(800);
    int64_t gap_max = 0;
    for (int step = 0; step < 5000; ++step) {
      // A offers ten requests for each of B's; both more than is served.
      for (int i = 0; i < 10; ++i) {
        if (machine.queue.waiting_of(1) < 600) machine.Offer(Work(1, 50 + static_cast<int64_t>(random.Below(100))));
      }
      QueueSpec b = Work(2, 50 + static_cast<int64_t>(random.Below(100)));
      b.weight = weight;
      if (machine.queue.waiting_of(2) < 100) machine.Offer(b);
      machine.Step();
      if (step >= 10)
        gap_max = std::max(gap_max, std::abs(machine.served[1] -
                                             static_cast<int64_t>(static_cast<double>(machine.served[2]) / weight)));
    }
    const double jain = Jain({static_cast<double>(machine.served[1]), static_cast<double>(machine.served[2]) / weight});
    std::printf("10 : 1 offered, weights 1 : %.0f: Jain %.4f, largest gap %ld tokens per weight\n", weight, jain,
                static_cast<long>(gap_max));
    EXPECT_GE(jain, 0.99);
    EXPECT_LE(gap_max, 2 * (150 + machine.rows)) << "one turn, here a request, and one charge of each";
    EXPECT_EQ(machine.served[1] + machine.served[2], 5000 * machine.rows) << "work conserving";
  }
}

TEST(WaitingQueueTest, ATenantAtAHundredTimesLeavesTheOthersAsTheyWere) {
  const auto p99_of_others = [](bool flood) {
    Random random(11);
    Machine machine(2000);
    for (int step = 0; step < 20'000; ++step) {
      for (uint64_t tenant = 1; tenant <= 4; ++tenant) {  // together 0.2 of what is served
        if (random.Below(20) == 0) machine.Offer(Work(tenant, 50 + static_cast<int64_t>(random.Below(100))));
      }
      for (int i = 0; flood && i < 10; ++i) {
        if (machine.free.size() > 200) machine.Offer(Work(9, 100));
      }
      machine.Step();
    }
    std::vector<TimeNs> waits;
    for (uint64_t tenant = 1; tenant <= 4; ++tenant)
      waits.insert(waits.end(), machine.waits[tenant].begin(), machine.waits[tenant].end());
    std::ranges::sort(waits);
    EXPECT_GT(waits.size(), 3500u);
    return static_cast<double>(waits[waits.size() * 99 / 100]) / kNsPerMs;
  };
  const double alone = p99_of_others(false), flooded = p99_of_others(true);
  std::printf("p99 of the others' wait: %.0f ms alone, %.0f ms beside a tenant at 100 x\n", alone, flooded);
  EXPECT_LE(flooded, alone + 20) << "one turn of the other and one of its own kind";
}

TEST(WaitingQueueTest, IdlingEarnsNothingAndWorkWithoutRivalsLeavesNoDebt) {
  Machine machine(400);
  for (int step = 0; step < 500; ++step) {
    for (int i = 0; i < 3; ++i) {
      if (machine.free.size() > 200) machine.Offer(Work(1, 100));
    }
    if (step == 0) machine.Offer(Work(2, 100));  // known, then idle
    machine.Step();
  }
  const auto before = machine.served;
  for (int step = 0; step < 100; ++step) {
    machine.Offer(Work(1, 100));
    machine.Offer(Work(2, 100));
    machine.Step();
  }
  const int64_t one = machine.served[1] - before.at(1), two = machine.served[2] - before.at(2);
  EXPECT_NEAR(static_cast<double>(one), static_cast<double>(two), 2.0 * static_cast<double>(machine.rows));
}

TEST(WaitingQueueTest, WhatExpiredNeverRunsAndWhatBeganNeverExpires) {
  Machine machine(64);
  machine.on_turn = [&](int32_t, const QueueSpec& spec) {
    ASSERT_GT(std::min(spec.deadline, spec.start_before), machine.now);
  };
  QueueSpec begun = Work(1, 250);
  begun.start_before = 15 * kNsPerMs;
  machine.Offer(begun);
  machine.Step();
  machine.on_turn = nullptr;
  machine.Step();
  machine.Step();
  EXPECT_EQ(machine.served[1], 250) << "it had begun before its queue timeout";

  QueueSpec late = Work(2, 50);
  late.deadline = machine.now + 5 * kNsPerMs;
  QueueSpec out_of_patience = Work(3, 50);
  out_of_patience.start_before = machine.now + 6 * kNsPerMs;
  machine.Offer(late);
  machine.Offer(out_of_patience);
  EXPECT_EQ(machine.queue.NextExpiry(), late.deadline);
  machine.now += 6 * kNsPerMs;
  machine.Step();
  EXPECT_EQ(machine.served[2] + machine.served[3], 0);
  EXPECT_EQ(machine.queue.waiting(), 0);
  EXPECT_EQ(machine.queue.NextExpiry(), kNever);
}

TEST(WaitingQueueTest, SetAsideIsPassedOverAndPreemptedComesBackToItsPlace) {
  WaitingQueue queue(4);
  for (int32_t slot : {0, 1, 2}) queue.Add(slot, {.remaining_tokens = 10 + slot, .start_before = 5 * kS});
  queue.SetAside(0);
  EXPECT_EQ(queue.First(), 1);
  EXPECT_EQ(queue.waiting(), 3) << "it still waits";
  queue.Begin(1);
  queue.Leave(1);
  EXPECT_EQ(queue.First(), 2);
  queue.RestoreAside();
  EXPECT_EQ(queue.First(), 0);
  queue.Return(1, 5);
  EXPECT_EQ(queue.First(), 1) << "a shorter prompt than it had";
  EXPECT_TRUE(queue.GoesBefore(1, 0));
  EXPECT_EQ(queue.waiting(), 2) << "it began: no cap counts it";
  std::vector<int32_t> expired;
  queue.Expired(6 * kS, &expired);
  EXPECT_EQ(expired.size(), 2u) << "nor does it expire";
  queue.SetAside(0);
  queue.Remove(0);
  queue.RestoreAside();
  queue.CheckIntegrity();
}

// What WaitingQueue decides, by searching lists from end to end.
class PlainSearch {
 public:
  struct Seen {
    QueueSpec spec;
    TimeNs due;
    uint64_t number;
    bool in_line;
  };
  struct Share {
    double counter = 0;
    uint64_t turn = 0;
  };
  using FlowName = std::pair<Band, uint64_t>;
  static FlowName FlowOf(const QueueSpec& s) { return {s.band, s.tenant}; }

  void Add(int32_t slot, const QueueSpec& spec, TimeNs due) {
    Join(spec);
    here[slot] = {spec, due, number_++, true};
  }
  void Return(Seen& seen) {
    Join(seen.spec);
    seen.in_line = true;
  }
  void Charge(const Seen& seen, int64_t tokens) {
    Share& share = shares[FlowOf(seen.spec)];
    double& now = virtual_time_[seen.spec.band];
    now = std::max(now, share.counter);
    share.counter += static_cast<double>(tokens);
    share.turn = ++turn_;
  }
  int32_t First() {
    int32_t first = -1;
    for (const auto& [slot, seen] : here) {
      if (seen.in_line && (first < 0 || KeyOf(seen) < KeyOf(here[first]))) first = slot;
    }
    return first;
  }

  std::map<int32_t, Seen> here;
  std::map<FlowName, Share> shares;

 private:
  void Join(const QueueSpec& spec) {
    for (const auto& [slot, seen] : here) {
      if (seen.in_line && FlowOf(seen.spec) == FlowOf(spec)) return;
    }
    Share& share = shares[FlowOf(spec)];
    share.counter = std::max(share.counter, virtual_time_[spec.band]);
  }
  std::tuple<Band, double, uint64_t, uint64_t, TimeNs, uint64_t> KeyOf(const Seen& seen) {
    const Share& share = shares[FlowOf(seen.spec)];
    return {seen.spec.band, share.counter, share.turn, seen.spec.tenant, seen.due, seen.number};
  }

  std::map<Band, double> virtual_time_;
  uint64_t number_ = 0, turn_ = 0;
};

QueueSpec AnySpec(Random& random, TimeNs now) {
  QueueSpec spec = Work(random.Below(4), 1 + static_cast<int64_t>(random.Below(300)));
  spec.band = static_cast<Band>(random.Below(kBands));
  spec.arrival = now;
  spec.position = static_cast<int32_t>(random.Below(3));
  if (random.Below(3) == 0) spec.deadline = now + static_cast<TimeNs>(random.Below(20)) * kS;
  return spec;
}

TEST(WaitingQueueTest, DecidesAsAPlainSearchDoes) {
  Random random(21);
  constexpr int32_t kSlots = 40;
  WaitingQueue queue(kSlots, kAgeingTokensPerSecond, 1);  // every charge ends a turn
  PlainSearch plain;
  for (int i = 0; i < 30'000; ++i) {
    const auto slot = static_cast<int32_t>(random.Below(kSlots));
    const auto found = plain.here.find(slot);
    if (found == plain.here.end()) {
      const QueueSpec spec = AnySpec(random, i * kNsPerMs);
      plain.Add(slot, spec, queue.DueOf(spec));
      queue.Add(slot, spec);
    } else if (PlainSearch::Seen& seen = found->second; random.Below(4) == 0) {
      queue.Remove(slot);
      plain.here.erase(found);
    } else if (!seen.in_line) {
      plain.Return(seen);
      queue.Return(slot, seen.spec.remaining_tokens);
    } else if (random.Below(4) == 0) {
      queue.Leave(slot);
      seen.in_line = false;
    } else {
      plain.Charge(seen, 7);
      queue.Charge(slot, 7);
      seen.spec.remaining_tokens = 1 + static_cast<int64_t>(random.Below(300));
      seen.due = queue.DueOf(seen.spec);
      queue.SetRemaining(slot, seen.spec.remaining_tokens);
    }
    const int32_t first = queue.First(), expected = plain.First();
    ASSERT_EQ(first < 0, expected < 0) << i;
    if (first >= 0 && first != expected) {  // flows that never were charged tie
      const QueueSpec &one = plain.here[first].spec, &other = plain.here[expected].spec;
      ASSERT_EQ(one.band, other.band) << i;
      ASSERT_EQ(plain.shares[PlainSearch::FlowOf(one)].counter, plain.shares[PlainSearch::FlowOf(other)].counter) << i;
      ASSERT_NE(one.tenant, other.tenant) << i;
    }
    if (i % 50 == 0) queue.CheckIntegrity();
  }
}

// A churn of more tenants than flows are remembered.
TEST(WaitingQueueTest, TenantsComeAndGo) {
  WaitingQueue queue(8);
  Random random(2);
  for (uint64_t i = 0; i < 20'000; ++i) {
    const auto slot = static_cast<int32_t>(i % 8);
    if (queue.Has(slot)) queue.Remove(slot);
    queue.Add(slot, {.tenant = random.Below(5000), .weight = 0.5, .remaining_tokens = 10});
    queue.Charge(slot, static_cast<int64_t>(random.Below(500)));
    if (i % 500 == 0) queue.CheckIntegrity();
  }
}

TEST(WaitingQueueTest, AheadPredictsTheOrderThatFollows) {
  Random random(17);
  for (int round = 0; round < 200; ++round) {
    Machine machine(64, 10, 1);
    for (int i = 0; i < 40; ++i) {
      QueueSpec spec = Work(random.Below(3), 10 + static_cast<int64_t>(random.Below(200)));
      spec.band = static_cast<Band>(random.Below(3));
      machine.Offer(spec);
      if (i == 20) machine.Step();
    }
    QueueSpec probe = Work(random.Below(4), 20);
    probe.band = Band::kHigh;
    probe.arrival = machine.now;
    const LineAhead ahead = machine.queue.Ahead(probe);
    const int32_t slot = *machine.Offer(probe);
    int64_t before = 0;
    for (const auto& [tenant, tokens] : machine.served) before -= tokens;
    while (machine.specs[slot].remaining_tokens == 20) machine.Step();
    for (const auto& [tenant, tokens] : machine.served) before += tokens;
    // Turns are ten tokens long, and each of three other flows may have one more or less.
    ASSERT_NEAR(static_cast<double>(before), static_cast<double>(ahead.tokens), 60) << round;
  }
}

TEST(WaitingQueueTest, NothingAllocatesAndTheCostGrowsSlowly) {
  for (int32_t n : {64, 256, 1024, 4096}) {
    WaitingQueue queue(n);
    Random random(1);
    std::vector<int32_t> expired;
    expired.reserve(static_cast<size_t>(n));
    for (int32_t slot = 0; slot < n; ++slot)
      queue.Add(slot, {.tenant = random.Below(50),
                       .remaining_tokens = static_cast<int64_t>(random.Below(2000)),
                       .start_before = slot * kNsPerMs + kS});
    allocations = 0;
    counting = true;
    const auto begin = std::chrono::steady_clock::now();
    constexpr int kTurns = 20'000;
    for (int i = 0; i < kTurns; ++i) {
      const int32_t slot = queue.First();
      queue.Begin(slot);
      queue.Charge(slot, 64);
      queue.SetRemaining(slot, 10);
      queue.Expired(0, &expired);
      queue.Remove(slot);
      queue.Add(slot, {.tenant = random.Below(50),
                       .remaining_tokens = static_cast<int64_t>(random.Below(2000)),
                       .arrival = i * kNsPerMs,
                       .start_before = kNever - 1});
    }
    const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    counting = false;
    if (kCountsAllocations) EXPECT_EQ(allocations, 0u);
    int64_t ahead = 0;
    counting = true;
    const auto asked = std::chrono::steady_clock::now();
    for (int i = 0; i < 1000; ++i)
      ahead += queue.Ahead({.tenant = random.Below(60), .remaining_tokens = 500, .arrival = 1000 * kS}).requests;
    const double ahead_us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - asked).count();
    counting = false;
    if (kCountsAllocations) EXPECT_EQ(allocations, 0u);
    EXPECT_GT(ahead, 0);
    std::printf("%4d waiting: %.2f us to choose, begin, charge, move, remove and add one; %.2f us for what is ahead\n",
                n, us / kTurns, ahead_us / 1000);
  }
}

}  // namespace
}  // namespace headrace
