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
      std::vector<int> first(97), second(31);
      pool.Run([&](int) {
        pool.For(97, [&](int64_t unit) { first[static_cast<size_t>(unit)] += 1; });
        pool.For(31, [&](int64_t unit) {
          second[static_cast<size_t>(unit)] = std::accumulate(first.begin(), first.end(), 0);
        });
        pool.For(0, [&](int64_t) { FAIL(); });
      });
      for (int count : first) ASSERT_EQ(count, 1);
      for (int seen : second) ASSERT_EQ(seen, 97);
    }
  }
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
      pool.Barrier();
      runs.fetch_add(1);
    });
  }
  EXPECT_EQ(runs.load(), 10);
}

}  // namespace
}  // namespace headrace
