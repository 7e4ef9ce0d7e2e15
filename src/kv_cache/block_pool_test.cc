// Goal: blocks are never lost, never shared, and a table that cannot grow stays as it was.
#include "kv_cache/block_pool.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/random.h"

namespace headrace {
namespace {

TEST(BlockPoolTest, RandomGrowthAndReleaseKeepsEveryBlockAccountedFor) {
  BlockPool pool(97);
  Random random(3);
  std::vector<std::unique_ptr<BlockTable>> tables;
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t what = random.Below(10);
    if (what < 2 || tables.empty()) {
      tables.push_back(std::make_unique<BlockTable>(pool, 97));
    } else if (what < 9) {
      BlockTable& table = *tables[random.Below(tables.size())];
      const int64_t wanted = table.capacity_tokens() + static_cast<int64_t>(random.Below(300));
      const int64_t missing = table.Missing(wanted);
      const auto before = table.blocks();
      const int32_t free_before = pool.available_blocks();
      const bool grew = table.GrowTo(wanted);
      ASSERT_EQ(grew, missing <= free_before);
      if (grew) {
        ASSERT_GE(table.capacity_tokens(), wanted);
      } else {
        ASSERT_EQ(table.blocks(), before);
      }
      if (random.Below(8) == 0) table.Clear();
    } else {
      tables.erase(tables.begin() + static_cast<int64_t>(random.Below(tables.size())));
    }
    if (step % 50 == 0) {
      std::vector<const BlockTable*> all;
      for (const auto& table : tables) all.push_back(table.get());
      CheckPoolIntegrity(pool, all);
    }
  }
  tables.clear();
  EXPECT_EQ(pool.available_blocks(), 97);
}

TEST(BlockPoolTest, TheIntegrityCheckSeesALeak) {
  BlockPool pool(4);
  BlockTable table(pool, 4);
  ASSERT_TRUE(table.GrowTo(65));
  EXPECT_DEATH(CheckPoolIntegrity(pool, {}), "CHECK failed");
}

}  // namespace
}  // namespace headrace
