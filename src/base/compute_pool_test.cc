// Goal: every unit of a stage runs exactly once, and what one stage wrote the next one sees, for any thread count,
// through spinning and through sleeping barriers.
#include "base/compute_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace headrace {
namespace {

TEST(ComputePoolTest, EveryUnitRunsOnceAndStagesAreOrdered) {
  for (int threads : {1, 2, 3, 5}) {
    ComputePool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> first(97), second(31), third(41);
      pool.Run([&](int worker) {
        pool.For(worker, 97, [&](int64_t unit) { first[static_cast<size_t>(unit)] += 1; });
        pool.For(worker, 31, [&](int64_t unit) {
          second[static_cast<size_t>(unit)] = std::accumulate(first.begin(), first.end(), 0);
        });
        pool.For(worker, 0, [&](int64_t) { FAIL(); });
        pool.ForRanges(worker, 41, 4, [&](int64_t begin, int64_t end) {
          EXPECT_LE(end - begin, 4);
          for (int64_t unit = begin; unit < end; ++unit) third[static_cast<size_t>(unit)] += 1;
        });
      });
      for (int count : first) ASSERT_EQ(count, 1);
      for (int seen : second) ASSERT_EQ(seen, 97);
      for (int count : third) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ComputePoolTest, AFinishedWorkerTakesUnitsFromTheOthers) {
  ComputePool pool(2);
  std::vector<int> runner(64, -1);
  std::atomic<int64_t> done{0};
  pool.Run([&](int worker) {
    pool.For(worker, 64, [&](int64_t unit) {
      runner[static_cast<size_t>(unit)] = worker;
      // The first unit of worker 0's run ends only when all the others have run: the other worker must take them.
      if (unit == 0) {
        while (done.load() < 63) std::this_thread::yield();
      }
      done.fetch_add(1);
    });
  });
  EXPECT_NE(runner[31], runner[0]);
}

TEST(ComputePoolTest, SleepingWorkersWakeUp) {
  ComputePool pool(2);
  std::atomic<int> runs{0};
  for (int round = 0; round < 5; ++round) {
    pool.Run([&](int worker) {
      if (worker == 0) {  // long enough for the other worker to leave its spin and sleep
        volatile double x = 1;
        for (int i = 0; i < 3'000'000; ++i) x = x * 1.0000001;
      }
      pool.Barrier(worker);
      runs.fetch_add(1);
    });
  }
  EXPECT_EQ(runs.load(), 10);
}

// Workers that are away most of the time are left out of runs and asked again later, whatever else the machine does.
TEST(ComputePoolTest, RunsGoOnWithFewerWorkersAndWithMoreAgain) {
  ComputePool pool(3);
  pool.Adapt();
  bool stalls = true;
  const auto run = [&] {
    std::atomic<int> workers{0}, units{0};
    const int active = pool.active();
    pool.Run([&](int worker) {
      workers.fetch_add(1);
      if (stalls && worker == active - 1 && worker > 0) {  // the others leave their spin and sleep
        volatile double x = 1;
        for (int i = 0; i < 1'000'000; ++i) x = x * 1.0000001;
      }
      pool.For(worker, 50, [&](int64_t) { units.fetch_add(1); });
    });
    ASSERT_EQ(workers.load(), active);
    ASSERT_EQ(units.load(), 50);
  };
  for (int i = 0; i < 100'000 && pool.active() > 1; ++i) run();
  EXPECT_EQ(pool.active(), 1);
  stalls = false;
  for (int i = 0; i < 100'000'000 && pool.active() == 1; ++i) run();
  EXPECT_EQ(pool.active(), 2);
  for (int i = 0; i < 10; ++i) run();
}

}  // namespace
}  // namespace headrace
