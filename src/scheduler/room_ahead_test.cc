// Goal: the peak is what a step by step count of all tokens held finds, whatever ends first.
#include "scheduler/room_ahead.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace headrace {
namespace {

TEST(RoomAheadTest, NoneHoldNothing) { EXPECT_EQ(RoomAhead().PeakTokens(), 0); }

TEST(RoomAheadTest, ThePeakIsThatOfEveryStepCounted) {
  Random random(3);
  RoomAhead room;
  room.Reserve(40);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::pair<int64_t, int64_t>> sequences(1 + random.Below(40));
    room.Clear();
    for (auto& [tokens, remaining] : sequences) {
      tokens = static_cast<int64_t>(random.Below(500));
      remaining = static_cast<int64_t>(random.Below(300));
      room.Add(tokens, remaining);
    }
    int64_t peak = 0;
    for (int64_t step = 0; step < 300; ++step) {
      int64_t held = 0;
      for (const auto& [tokens, remaining] : sequences) held += step > remaining ? 0 : tokens + step + kBlockTokens / 2;
      peak = std::max(peak, held);
    }
    EXPECT_EQ(room.PeakTokens(), peak);
  }
}

}  // namespace
}  // namespace headrace
