// Goal: the least of all limits is what is left: of every cgroup from the process's own to the root, in both versions,
// less what is used and plus the page cache that gives way; and of the address space.
#include "base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace headrace {
namespace {

namespace fs = std::filesystem;

class CgroupTest : public testing::Test {
 protected:
  CgroupTest() : root_(fs::temp_directory_path() / ("headrace-cgroup-" + std::to_string(getpid()))) {
    fs::create_directories(root_);
  }
  ~CgroupTest() override { fs::remove_all(root_); }

  void Write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << "\n";
  }
  uint64_t Left(const std::string& membership) const { return CgroupMemoryLeft(root_.string(), membership); }

  const fs::path root_;
};

TEST_F(CgroupTest, WithoutLimitsNothingIsLimited) {
  EXPECT_EQ(Left("0::/\n"), kNoMemoryLimit);
  EXPECT_EQ(Left(""), kNoMemoryLimit);
  Write("memory.max", "max");
  Write("memory.current", "5000");
  EXPECT_EQ(Left("0::/\n"), kNoMemoryLimit);
}

TEST_F(CgroupTest, V2TakesTheLeastOfAllLevelsAndPageCacheGivesWay) {
  Write("a/memory.max", "1000000");
  Write("a/memory.current", "400000");
  Write("a/b/memory.max", "900000");
  Write("a/b/memory.current", "100000");
  EXPECT_EQ(Left("0::/a/b\n"), 600000u);
  EXPECT_EQ(Left("0::/a\n"), 600000u);
  Write("a/memory.stat", "anon 100000\nfile 300000\ninactive_file 200000\nactive_file 100000\nshmem 0");
  EXPECT_EQ(Left("0::/a/b\n"), 800000u);
  Write("a/b/memory.current", "950000");
  EXPECT_EQ(Left("0::/a/b\n"), 0u);
}

TEST_F(CgroupTest, V2InAContainerSeesItsOwnGroupAsTheRoot) {
  Write("memory.max", "700");
  Write("memory.current", "100");
  EXPECT_EQ(Left("0::/system.slice/docker-0123.scope\n"), 600u);
  EXPECT_EQ(Left("0::/../other\n"), 600u);
}

TEST_F(CgroupTest, V1HasAHierarchyForMemoryAndANumberForNoLimit) {
  Write("memory/memory.limit_in_bytes", "9223372036854771712");
  Write("memory/memory.usage_in_bytes", "1000");
  const std::string membership = "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/x\n";
  EXPECT_EQ(Left(membership), kNoMemoryLimit);
  Write("memory/x/memory.limit_in_bytes", "5000");
  Write("memory/x/memory.usage_in_bytes", "4000");
  Write("memory/x/memory.stat", "inactive_file 7\ntotal_inactive_file 500\ntotal_active_file 300");
  EXPECT_EQ(Left(membership), 1800u);
  EXPECT_EQ(Left("5:cpu:/x\n"), kNoMemoryLimit);
}

TEST_F(CgroupTest, NonsenseIsNoLimit) {
  Write("memory.max", "12 apples");
  Write("memory.current", "");
  EXPECT_EQ(Left("0::/\n"), kNoMemoryLimit);
  EXPECT_EQ(Left("no colons at all\n:\n::\n0:\n"), kNoMemoryLimit);
}

TEST(AddressSpaceTest, IsWhatTheLimitLeaves) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "a limit is set already";
  const uint64_t unlimited = AddressSpaceLeft();
  const rlimit huge{1ull << 50, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &huge), 0);
  const uint64_t left = AddressSpaceLeft();
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_LT(left, 1ull << 50);
  EXPECT_LE(left, unlimited);
  EXPECT_EQ(AddressSpaceLeft(), unlimited);
}

}  // namespace
}  // namespace headrace
