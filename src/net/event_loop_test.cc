// Goal: tasks keep their order, timers fire once and in order, a ring of a bell is never lost and many are one, signals
// arrive as calls, and one faulty task does not end the loop.
#include "net/event_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "net/deadline.h"

namespace headrace {
namespace {

TEST(EventLoopTest, RunsPostedTasksInOrderAndStops) {
  EventLoop loop;
  std::vector<int> seen;
  for (int i = 0; i < 100; ++i) loop.Post([&seen, i] { seen.push_back(i); });
  loop.Post([&loop] { loop.Stop(); });
  loop.Run();
  ASSERT_EQ(seen.size(), 100u);
  EXPECT_TRUE(std::ranges::is_sorted(seen));
}

TEST(EventLoopTest, AStopBeforeRunIsNotLost) {
  EventLoop loop;
  loop.Stop();
  loop.Run();
}

TEST(EventLoopTest, TimersFireOnceInOrderUnlessCancelled) {
  EventLoop loop;
  std::string seen;
  const auto late = loop.After(20 * kNsPerMs, [&] {
    seen += 'c';
    loop.Stop();
  });
  loop.After(5 * kNsPerMs, [&] { seen += 'b'; });
  const auto never = loop.After(1 * kNsPerMs, [&] { seen += 'x'; });
  loop.After(0, [&] { seen += 'a'; });
  loop.After(kNever, [&] { seen += 'y'; });
  loop.Cancel(never);
  loop.Cancel({});
  loop.Run();
  loop.Cancel(late);  // has run
  EXPECT_EQ(seen, "abc");
}

TEST(EventLoopTest, ATaskThatThrowsIsLoggedAndTheLoopGoesOn) {
  EventLoop loop;
  int after = 0;
  loop.Post([] { throw std::runtime_error("fault of a task"); });
  loop.After(0, [] { throw std::runtime_error("fault of a timer"); });
  loop.After(kNsPerMs, [&] {
    ++after;
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(after, 1);
}

TEST(EventLoopTest, KnowsItsThread) {
  EventLoop loop;
  EXPECT_TRUE(loop.InLoopThread());
  std::latch running(1), asked(1);
  std::thread runner([&] { loop.Run(); });
  loop.Post([&] {
    EXPECT_TRUE(loop.InLoopThread());
    running.count_down();
    asked.wait();
    loop.Stop();
  });
  running.wait();
  EXPECT_FALSE(loop.InLoopThread());
  asked.count_down();
  runner.join();
}

TEST(LoopDoorbellTest, ManyRingsBeforeTheLoopLooksAreOneCall) {
  EventLoop loop;
  int calls = 0;
  const auto bell = loop.MakeDoorbell([&] {
    ++calls;
    loop.Stop();
  });
  for (int i = 0; i < 1000; ++i) bell->Ring();
  loop.Run();
  EXPECT_EQ(calls, 1);
}

TEST(LoopDoorbellTest, NoRingIsLostBetweenThreads) {
  EventLoop loop;
  constexpr int kRounds = 20'000;
  std::atomic<int> work_a{0}, work_b{0};
  int done_a = 0, done_b = 0;
  const auto stop_when_done = [&] {
    if (done_a == kRounds && done_b == kRounds) loop.Stop();
  };
  const auto bell_a = loop.MakeDoorbell([&] {
    done_a = work_a.load();
    stop_when_done();
  });
  const auto bell_b = loop.MakeDoorbell([&] {
    done_b = work_b.load();
    stop_when_done();
  });
  std::thread a([&] {
    for (int i = 0; i < kRounds; ++i) {
      work_a.fetch_add(1);
      bell_a->Ring();
    }
  });
  std::thread b([&] {
    for (int i = 0; i < kRounds; ++i) {
      work_b.fetch_add(1);
      bell_b->Ring();
    }
  });
  loop.Run();  // would hang if the last ring were lost
  a.join();
  b.join();
  EXPECT_EQ(done_a + done_b, 2 * kRounds);
}

TEST(LoopDoorbellTest, ADroppedBellIsSilentAndMayBeDroppedByItsOwnCall) {
  EventLoop loop;
  auto silent = loop.MakeDoorbell([] { FAIL(); });
  silent->Ring();
  silent.reset();
  std::unique_ptr<Doorbell> own;
  own = loop.MakeDoorbell([&] {
    own.reset();
    loop.Stop();
  });
  own->Ring();
  loop.Run();
  EXPECT_EQ(own, nullptr);
  loop.MakeDoorbell([] {})->Ring();  // never answered: released with the loop, which the leak checker sees
}

TEST(EventLoopTest, SignalsArriveAsCalls) {
  EventLoop loop;
  std::vector<int> seen;
  loop.OnSignal({SIGTERM, SIGINT}, [&](int number) {
    seen.push_back(number);
    if (seen.size() == 2) return loop.Stop();
    std::raise(SIGINT);
  });
  loop.Post([] { std::raise(SIGTERM); });
  loop.Run();
  EXPECT_EQ(seen, (std::vector<int>{SIGTERM, SIGINT}));
}

TEST(DeadlineTest, MovingItLaterPostponesItAndClearingStopsIt) {
  EventLoop loop;
  TimeNs fired_at = 0;
  const TimeNs start = loop.Now();
  Deadline moved(loop, [&] {
    fired_at = loop.Now();
    loop.Stop();
  });
  Deadline cleared(loop, [] { FAIL(); });
  moved.Set(2 * kNsPerMs);
  moved.Set(30 * kNsPerMs);
  cleared.Set(kNsPerMs);
  cleared.Clear();
  loop.Run();
  EXPECT_GE(fired_at - start, 30 * kNsPerMs);
}

}  // namespace
}  // namespace headrace
