// Goal: the index of a tier finds what was put in and nothing else; what is given up is what was wanted least recently,
// a child before its parent, nothing pinned, of which there is half at most; and random use keeps every invariant.
#include "kv_cache/tier_index.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"

namespace headrace {
namespace {

BlockName Name(uint64_t i) { return {SplitMix64(i), i}; }

TEST(TierIndexTest, TheLeastRecentlyWantedGoesFirstAndAChildBeforeItsParent) {
  TierIndex index(4);
  const BlockName a = Name(1), b = Name(2), c = Name(3), d = Name(4);
  index.Insert(a, nullptr);
  index.Insert(b, &a);
  index.Insert(c, &b);
  index.Insert(d, nullptr);
  EXPECT_TRUE(index.full());
  EXPECT_EQ(index.name(index.LeastWanted(0)), c);
  for (const BlockName& name : {c, b, a}) index.Touch(index.Find(name));  // a chain, from its end
  EXPECT_EQ(index.name(index.LeastWanted(0)), d);
  index.Remove(index.Find(d));
  EXPECT_EQ(index.name(index.LeastWanted(0)), c);
  EXPECT_EQ(index.Find(d), -1);
  index.CheckIntegrity();
}

TEST(TierIndexTest, AParentThatEntersAfterItsChildOutlivesIt) {
  TierIndex index(4);
  const BlockName child = Name(1), parent = Name(2);
  index.Insert(child, &parent);
  index.Insert(parent, nullptr);
  EXPECT_EQ(index.name(index.LeastWanted(0)), child);
}

TEST(TierIndexTest, WhatIsPinnedStaysUntilItsTime) {
  TierIndex index(4);
  for (uint64_t i = 0; i < 3; ++i) index.Insert(Name(i), nullptr);
  EXPECT_TRUE(index.Pin(index.Find(Name(0)), 100, 10));
  EXPECT_TRUE(index.Pin(index.Find(Name(1)), 50, 10));
  EXPECT_TRUE(index.Pin(index.Find(Name(2)), 10, 10)) << "which is over";
  EXPECT_EQ(index.pinned(), 2);
  EXPECT_EQ(index.name(index.LeastWanted(10)), Name(2));
  index.Remove(index.Find(Name(2)));
  EXPECT_EQ(index.LeastWanted(10), -1) << "all are pinned";
  EXPECT_EQ(index.name(index.LeastWanted(60)), Name(1));
  EXPECT_EQ(index.name(index.LeastWanted(100)), Name(1)) << "both times are over, the older one goes";
  index.CheckIntegrity();
}

TEST(TierIndexTest, HalfOfThePlacesArePinnedAtMost) {
  TierIndex index(6);
  for (uint64_t i = 0; i < 6; ++i) index.Insert(Name(i), nullptr);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(index.Pin(index.Find(Name(i)), i < 2 ? 50 : 100, 10));
  EXPECT_FALSE(index.Pin(index.Find(Name(3)), 200, 10));
  EXPECT_TRUE(index.Pin(index.Find(Name(1)), 60, 10)) << "it is pinned already";
  EXPECT_EQ(index.name(index.LeastWanted(10)), Name(3));
  EXPECT_TRUE(index.Pin(index.Find(Name(3)), 200, 50)) << "the first one's time is over";
  EXPECT_FALSE(index.Pin(index.Find(Name(4)), 200, 59));
  EXPECT_TRUE(index.Pin(index.Find(Name(4)), 200, 60));
  EXPECT_EQ(index.pinned(), 3);
  index.CheckIntegrity();
}

TEST(TierIndexTest, RandomUseAgainstAMap) {
  Random random(3);
  TierIndex index(50);
  std::map<uint64_t, uint32_t> held;  // with the generation of its place
  for (int step = 0; step < 20'000; ++step) {
    const uint64_t key = random.Below(200);
    const int32_t place = index.Find(Name(key));
    ASSERT_EQ(place >= 0, held.contains(key));
    if (place >= 0) {
      ASSERT_EQ(index.generation(place), held[key]);
      switch (random.Below(4)) {
        case 0:
          index.Remove(place);
          held.erase(key);
          break;
        case 1:
          index.Pin(place, static_cast<TimeNs>(step + random.Below(50)), step);
          break;
        default:
          index.Touch(place);
      }
    } else {
      if (index.full()) {
        const int32_t least = index.LeastWanted(step);
        if (least < 0) continue;
        held.erase(index.name(least).high);
        index.Remove(least);
      }
      const BlockName parent = Name(random.Below(200));
      const int32_t inserted = index.Insert(Name(key), random.Below(2) == 0 ? &parent : nullptr);
      EXPECT_FALSE(index.ready(inserted));
      held[key] = index.generation(inserted);
    }
    if (step % 100 == 0) index.CheckIntegrity();
  }
  ASSERT_EQ(static_cast<size_t>(index.used()), held.size());
}

}  // namespace
}  // namespace headrace
