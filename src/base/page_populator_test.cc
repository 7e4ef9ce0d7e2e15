// Goal: the stock behind what is in use is made ready, in every part and no further, no byte changes, and nothing is
// done while something is computed.
#include "base/page_populator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/huge_buffer.h"

namespace headrace {
namespace {

constexpr uint64_t kMiB = 1 << 20;

uint64_t ResidentBytes(const HugeBuffer& buffer) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(buffer.bytes() / page);
  EXPECT_EQ(mincore(buffer.data(), buffer.bytes(), pages.data()), 0);
  uint64_t resident = 0;
  for (unsigned char p : pages) resident += (p & 1) * page;
  return resident;
}

bool SystemPopulates() {
  HugeBuffer buffer = *HugeBuffer::Allocate(kMiB, "a test");
  constexpr int kMadvPopulateWrite = 23;
  return madvise(buffer.data(), kMiB, kMadvPopulateWrite) == 0;
}

bool AwaitReady(const PagePopulator& populator, uint64_t bytes) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (populator.ready() < bytes && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  return populator.ready() >= bytes;
}

TEST(PagePopulatorTest, KeepsAStockBehindWhatIsUsedAndChangesNothing) {
  if (!SystemPopulates()) GTEST_SKIP() << "this system cannot populate pages";
  HugeBuffer a = *HugeBuffer::Allocate(64 * kMiB, "a test"), b = *HugeBuffer::Allocate(64 * kMiB, "a test");
  a.data()[3 * kMiB] = std::byte{7};
  PagePopulator populator({{a.data(), a.bytes()}, {b.data(), b.bytes()}}, 8 * kMiB);
  ASSERT_TRUE(AwaitReady(populator, 8 * kMiB));
  EXPECT_GE(ResidentBytes(a), 8 * kMiB);
  EXPECT_LT(ResidentBytes(b), 16 * kMiB);
  EXPECT_EQ(a.data()[3 * kMiB], std::byte{7});
  populator.Use(20 * kMiB);
  ASSERT_TRUE(AwaitReady(populator, 28 * kMiB));
  EXPECT_EQ(populator.ready(), 28 * kMiB);
  EXPECT_LT(ResidentBytes(b), 40 * kMiB);
  populator.Use(64 * kMiB);
  populator.Use(2 * kMiB);
  EXPECT_EQ(a.data()[3 * kMiB], std::byte{7});
  EXPECT_EQ(b.data()[63 * kMiB], std::byte{0});
}

TEST(PagePopulatorTest, RestsWhileSomethingIsComputed) {
  if (!SystemPopulates()) GTEST_SKIP() << "this system cannot populate pages";
  HugeBuffer a = *HugeBuffer::Allocate(64 * kMiB, "a test");
  PagePopulator populator({{a.data(), a.bytes()}}, 4 * kMiB);
  ASSERT_TRUE(AwaitReady(populator, 4 * kMiB));
  populator.SetBusy(true);
  populator.Use(8 * kMiB);
  for (int i = 0; i < 2000; ++i) std::this_thread::yield();
  EXPECT_LE(populator.ready(), 6 * kMiB) << "one piece may have been under way";
  populator.SetBusy(false);
  EXPECT_TRUE(AwaitReady(populator, 12 * kMiB));
}

TEST(PagePopulatorTest, EndsAtOnceWhateverItDoes) {
  HugeBuffer a = *HugeBuffer::Allocate(1024 * kMiB, "a test");
  for (int i = 0; i < 20; ++i) PagePopulator populator({{a.data(), a.bytes()}}, i % 2 == 0 ? a.bytes() : 0);
}

}  // namespace
}  // namespace headrace
