// Goal: the engine's side of the disk never waits and loses no buffer: what was written can be read once it is there, a
// full queue drops, the least wanted makes room, damage and failures are counted and end as "not here", a pause follows
// a refusal; on a thread and on virtual time alike.
#include "kv_tier/disk_tier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/random.h"
#include "kv_tier/memory_tier.h"

namespace headrace {
namespace {

constexpr uint64_t kPayload = 16 << 20;  // so large that there are few buffers
constexpr uint64_t kSmall = 256;

NamedBlock BlockOf(uint64_t i) {
  NamedBlock block{.name = {SplitMix64(i), i}};
  block.ids[0] = static_cast<int32_t>(i);
  return block;
}

struct World {
  explicit World(uint64_t payload, uint64_t blocks = 100, TimeNs took = kNsPerMs) {
    const uint64_t file = (payload + BlockSeal::kOverheadBytes + 4095) / 4096 * 4096;
    auto folder = BlockFolder::Open(std::make_unique<MemoryFolder>(*files),
                                    std::make_unique<BlockSeal>(DeploymentKey::Draw(), "m", payload), blocks * file);
    EXPECT_TRUE(folder);
    disk = *DiskTier::Make(std::move(*folder), clock);
    disk->Start(took < 0 ? &bell : nullptr, took);
  }
  bool Write(uint64_t i) {
    const auto to = disk->BeginWrite(BlockOf(i), nullptr, 0, clock.Now());
    if (to.empty()) return false;
    std::memset(to.data(), static_cast<int>(i), to.size());
    disk->SubmitWrite();
    return true;
  }
  void Wait() {
    clock.Advance(kNsPerSecond);
    disk->Drain(clock.Now());
  }
  bool Has(uint64_t i) { return disk->Has(BlockOf(i).name, clock.Now()); }
  // Whether it came back right; false also when it did not come.
  bool Read(uint64_t i) {
    EXPECT_TRUE(disk->StartRead(BlockOf(i), 0, i));
    Wait();
    EXPECT_EQ(disk->reads().size(), 1u);
    const DiskTier::Read read = disk->reads()[0];
    EXPECT_EQ(read.ticket, i);
    const bool right = read.ok && std::ranges::all_of(read.bytes, [&](std::byte b) { return b == std::byte(i); });
    EXPECT_EQ(right, read.ok);
    disk->EndRead(read.buffer);
    disk->reads().clear();
    return right;
  }
  VirtualClock clock;
  FutexDoorbell bell;
  const std::unique_ptr<MemoryFiles> files = std::make_unique<MemoryFiles>();
  std::unique_ptr<DiskTier> disk;
};

TEST(DiskTierTest, ABlockIsHereOnceItIsWritten) {
  World w(kSmall);
  ASSERT_TRUE(w.Write(1));
  EXPECT_FALSE(w.Has(1));
  EXPECT_FALSE(w.Write(1)) << "it is on its way";
  w.Wait();
  EXPECT_TRUE(w.Has(1));
  EXPECT_TRUE(w.Read(1));
  EXPECT_FALSE(w.disk->reading());
  EXPECT_GT(w.disk->ns_per_read(), 0);
  EXPECT_EQ(w.disk->stats().spilled.load(), 1u);
}

TEST(DiskTierTest, AFullQueueDropsAndNoBufferIsLost) {
  World w(kPayload);
  int written = 0;
  for (uint64_t i = 0; i < 20; ++i) written += w.Write(i);
  EXPECT_EQ(written, static_cast<int>(DiskTier::kWriteBytesMax / kPayload));
  EXPECT_EQ(w.disk->stats().dropped.load(), 20u - static_cast<uint64_t>(written));
  w.Wait();
  for (uint64_t i = 0; i < 2; ++i) EXPECT_TRUE(w.disk->StartRead(BlockOf(i), 0, i));
  EXPECT_FALSE(w.disk->StartRead(BlockOf(2), 0, 2)) << "two buffers are out";
  w.Wait();
  while (!w.disk->reads().empty()) {
    w.disk->EndRead(w.disk->reads().back().buffer);
    w.disk->reads().pop_back();
  }
  EXPECT_TRUE(w.Write(50));
  EXPECT_TRUE(w.Read(2));
}

TEST(DiskTierTest, TheLeastWantedMakesRoomUnlessPinned) {
  World w(kSmall, 3);
  for (uint64_t i = 0; i < 3; ++i) {
    w.Write(i);
    w.Wait();
  }
  w.disk->Touch(BlockOf(0).name);
  w.disk->Pin(BlockOf(1).name, kNever, 0);
  ASSERT_TRUE(w.Write(3));
  w.Wait();
  EXPECT_TRUE(w.Has(0) && w.Has(1) && w.Has(3));
  EXPECT_FALSE(w.Has(2));
  EXPECT_EQ(w.files->files.size(), 3u);
  for (uint64_t i : {0, 3}) w.disk->Pin(BlockOf(i).name, kNever, 0);
  EXPECT_EQ(w.disk->stats().pinned.load(), 1) << "of three places one";
  ASSERT_TRUE(w.Write(4));
  w.Wait();
  EXPECT_TRUE(w.Has(1) && w.Has(4));
  EXPECT_EQ(w.disk->stats().dropped.load(), 0u);
}

TEST(DiskTierTest, DamageIsCountedOnceAndTheBlockIsGone) {
  World w(kSmall);
  w.Write(1);
  w.Wait();
  w.files->files.begin()->second.bytes[300] ^= std::byte{4};
  EXPECT_FALSE(w.Read(1));
  EXPECT_FALSE(w.Has(1));
  EXPECT_EQ(w.disk->stats().damaged.load(), 1u);
  EXPECT_EQ(w.disk->stats().failed.load(), 0u);
  ASSERT_TRUE(w.Write(1)) << "and can be written again";
  w.Wait();
  EXPECT_TRUE(w.Read(1));
}

TEST(DiskTierTest, AFullDiskIsLeftAloneForAWhile) {
  World w(kSmall);
  w.Write(1);
  w.Wait();
  w.files->full = true;
  w.Write(2);
  w.Wait();
  EXPECT_FALSE(w.Has(2));
  EXPECT_EQ(w.disk->stats().failed.load(), 1u);
  w.files->full = false;
  EXPECT_FALSE(w.Write(2)) << "the pause";
  EXPECT_TRUE(w.Read(1)) << "reading goes on";
  w.clock.Advance(DiskTier::kPause);
  EXPECT_TRUE(w.Write(2));
}

TEST(DiskTierTest, RandomUseOnVirtualTimeAndOnAThread) {
  for (const TimeNs took : {TimeNs{15 * kNsPerMs}, TimeNs{-1}}) {
    World w(kSmall, 30, took);
    Random random(5);
    std::map<uint64_t, int> reading;  // tickets
    int right = 0;
    for (int step = 0; step < 4000; ++step) {
      w.clock.Advance(20 * kNsPerMs);
      w.disk->Drain(w.clock.Now());
      for (const DiskTier::Read& read : w.disk->reads()) {
        ASSERT_EQ(reading.erase(read.ticket), 1u);
        const uint64_t i = read.ticket % 60;
        if (read.ok) {
          ASSERT_TRUE(std::ranges::all_of(read.bytes, [&](std::byte b) { return b == std::byte(i); }));
          ++right;
        }
        w.disk->EndRead(read.buffer);
      }
      w.disk->reads().clear();
      const uint64_t i = random.Below(60);
      if (w.Has(i)) {
        const uint64_t ticket = static_cast<uint64_t>(step) * 60 + i;
        if (w.disk->StartRead(BlockOf(i), 0, ticket)) reading[ticket] = 1;
      } else {
        w.Write(i);
      }
      w.disk->index().CheckIntegrity();
    }
    if (took >= 0) EXPECT_GT(right, 500);
    w.disk->Stop();
    EXPECT_EQ(w.disk->stats().damaged.load(), 0u);
    EXPECT_LE(w.files->files.size(), 30u);
  }
}

TEST(MemoryTierTest, HoldsTheMostRecentAndComparesIds) {
  auto memory = *MemoryTier::Make(3 * kSmall + 10, kSmall);
  for (uint64_t i = 0; i < 4; ++i) {
    const auto to = memory->Put(BlockOf(i), 0);
    ASSERT_EQ(to.size(), kSmall);
    std::memset(to.data(), static_cast<int>(i), to.size());
  }
  EXPECT_TRUE(memory->Get(BlockOf(0)).empty());
  for (uint64_t i = 1; i < 4; ++i) EXPECT_EQ(memory->Get(BlockOf(i))[9], std::byte(i));
  EXPECT_TRUE(memory->Put(BlockOf(1), 0).empty()) << "it is here, and the most recent from now on";
  memory->Put(BlockOf(5), 0);
  EXPECT_TRUE(memory->Has(BlockOf(1).name));
  NamedBlock forged = BlockOf(1);
  forged.ids[7] = 1;
  EXPECT_TRUE(memory->Get(forged).empty());
  memory->Pin(BlockOf(3).name, 100, 50);
  for (uint64_t i = 6; i < 10; ++i) EXPECT_FALSE(memory->Put(BlockOf(i), 50).empty());
  EXPECT_TRUE(memory->Has(BlockOf(3).name));
  EXPECT_EQ(memory->stats().pinned.load(), 1);
  for (uint64_t i = 6; i < 10; ++i) memory->Put(BlockOf(i), 100);
  EXPECT_FALSE(memory->Has(BlockOf(3).name));
  EXPECT_FALSE(MemoryTier::Make(kSmall - 1, kSmall));
}

}  // namespace
}  // namespace headrace
