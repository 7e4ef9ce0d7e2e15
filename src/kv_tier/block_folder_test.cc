// Goal: what comes back from a folder is what went in, or nothing: after a restart, a kill in the middle of a write,
// any flipped bit, any cut, under another name, key, model or version, with a full disk; the limit of bytes holds, also
// beside what other models left; and nobody else's file is touched.
#include "kv_tier/block_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/random.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kPayload = 1024;

NamedBlock BlockOf(uint64_t i) {
  NamedBlock block{.name = {SplitMix64(i), SplitMix64(~i)}};
  for (int32_t t = 0; t < kBlockTokens; ++t) block.ids[static_cast<size_t>(t)] = static_cast<int32_t>(i) * 1000 + t;
  return block;
}
std::vector<std::byte> PayloadOf(uint64_t i, uint64_t bytes = kPayload) {
  std::vector<std::byte> payload(bytes);
  for (size_t b = 0; b < bytes; ++b) payload[b] = static_cast<std::byte>(KeyedRandom(i, b));
  return payload;
}

const DeploymentKey& Key() {
  static const DeploymentKey key = DeploymentKey::Draw();
  return key;
}

Result<std::unique_ptr<BlockFolder>> OpenIn(MemoryFiles& files, uint64_t bytes_max = 1 << 20,
                                            std::string_view fingerprint = "model", uint64_t payload = kPayload,
                                            const DeploymentKey& key = Key()) {
  return BlockFolder::Open(std::make_unique<MemoryFolder>(files),
                           std::make_unique<BlockSeal>(key, fingerprint, payload), bytes_max);
}

ErrorCode ReadCode(BlockFolder& folder, const NamedBlock& wanted, std::vector<std::byte>* out) {
  out->assign(folder.payload_bytes(), std::byte{1});
  const Status status = folder.Read(wanted, *out, 0);
  return status ? ErrorCode::kCancelled : status.error().code;  // kCancelled stands for success
}
constexpr ErrorCode kRead = ErrorCode::kCancelled;

TEST(BlockFolderTest, WhatWentInComesOutAlsoAfterARestart) {
  MemoryFiles files;
  std::vector<std::byte> out;
  {
    auto folder = *OpenIn(files);
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(folder->Write(BlockOf(i), PayloadOf(i), static_cast<int64_t>(9 - i)));
    for (uint64_t i = 0; i < 10; ++i) {
      ASSERT_EQ(ReadCode(*folder, BlockOf(i), &out), kRead);
      EXPECT_EQ(out, PayloadOf(i));
    }
    EXPECT_EQ(ReadCode(*folder, BlockOf(99), &out), ErrorCode::kNotFound);
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(folder->Read(BlockOf(i), out, static_cast<int64_t>(9 - i)));
  }
  auto folder = *OpenIn(files);
  ASSERT_EQ(folder->found().size(), 10u);
  for (uint64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(folder->found()[i], BlockOf(9 - i).name) << "the least recently wanted first";
    ASSERT_EQ(ReadCode(*folder, BlockOf(i), &out), kRead);
    EXPECT_EQ(out, PayloadOf(i));
  }
}

TEST(BlockFolderTest, IdsAndValuesAreNowhereInTheClear) {
  MemoryFiles files;
  auto folder = *OpenIn(files);
  ASSERT_TRUE(folder->Write(BlockOf(7), PayloadOf(7), 0));
  const NamedBlock block = BlockOf(7);
  const auto ids = std::as_bytes(std::span(block.ids));
  const auto payload = PayloadOf(7);
  for (const auto& [path, file] : files.files) {
    for (size_t at = 0; at + 8 <= kPayload; at += 8) {
      const auto part = at + 8 <= ids.size() ? ids.subspan(at, 8) : std::span(payload).subspan(at, 8);
      EXPECT_TRUE(std::ranges::search(file.bytes, part).empty());
    }
  }
}

TEST(BlockFolderTest, EveryFlippedBitIsNoticed) {
  MemoryFiles files;
  auto folder = *OpenIn(files, 1 << 20, "model", 64);
  std::vector<std::byte> out;
  ASSERT_TRUE(folder->Write(BlockOf(1), PayloadOf(1, 64), 0));
  const auto [path, whole] = *files.files.begin();
  for (size_t bit = 0; bit < whole.bytes.size() * 8; ++bit) {
    files.files[path] = whole;
    files.files[path].bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    ASSERT_EQ(ReadCode(*folder, BlockOf(1), &out), ErrorCode::kCorruptData) << "bit " << bit;
    ASSERT_TRUE(files.files.empty()) << "and it is gone";
    ASSERT_EQ(out, std::vector<std::byte>(64)) << "nothing of it is left in memory";
  }
  files.files[path] = whole;
  EXPECT_EQ(ReadCode(*folder, BlockOf(1), &out), kRead);
}

TEST(BlockFolderTest, EveryCutAndEveryAdditionIsNoticed) {
  MemoryFiles files;
  auto folder = *OpenIn(files);
  std::vector<std::byte> out;
  ASSERT_TRUE(folder->Write(BlockOf(1), PayloadOf(1), 0));
  const auto [path, whole] = *files.files.begin();
  for (size_t bytes = 0; bytes <= whole.bytes.size() + 64; ++bytes) {
    if (bytes == whole.bytes.size()) continue;
    files.files[path] = whole;
    files.files[path].bytes.resize(bytes);
    ASSERT_EQ(ReadCode(*folder, BlockOf(1), &out), ErrorCode::kCorruptData) << bytes;
  }
  files.cut = true;
  ASSERT_TRUE(folder->Write(BlockOf(2), PayloadOf(2), 0)) << "a power cut says nothing";
  EXPECT_EQ(ReadCode(*folder, BlockOf(2), &out), ErrorCode::kCorruptData);
}

TEST(BlockFolderTest, ABlockUnderAnothersNameOrWithOtherIdsIsNoBlock) {
  MemoryFiles files;
  auto folder = *OpenIn(files);
  std::vector<std::byte> out;
  ASSERT_TRUE(folder->Write(BlockOf(1), PayloadOf(1), 0));
  const auto one = files.files.begin()->second;
  ASSERT_TRUE(folder->Write(BlockOf(2), PayloadOf(2), 0));
  for (auto& [path, file] : files.files) file = one;
  EXPECT_EQ(ReadCode(*folder, BlockOf(2), &out), ErrorCode::kCorruptData);
  NamedBlock forged = BlockOf(1);
  forged.ids[63] ^= 1;
  EXPECT_EQ(ReadCode(*folder, forged, &out), ErrorCode::kCorruptData);
}

TEST(BlockFolderTest, AnotherModelKeyOrSizeFindsNothingAndItsFilesGoFirst) {
  MemoryFiles files;
  std::vector<std::byte> out;
  {
    auto folder = *OpenIn(files);
    for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(folder->Write(BlockOf(i), PayloadOf(i), static_cast<int64_t>(i)));
  }
  const DeploymentKey other_key = DeploymentKey::Draw();
  const auto expect_nothing = [&](Result<std::unique_ptr<BlockFolder>> folder) {
    ASSERT_TRUE(folder);
    EXPECT_TRUE((*folder)->found().empty());
    EXPECT_EQ((*folder)->foreign_blocks(), 4u);
    EXPECT_EQ(ReadCode(**folder, BlockOf(1), &out), ErrorCode::kNotFound);
  };
  expect_nothing(OpenIn(files, 1 << 20, "other model"));
  expect_nothing(OpenIn(files, 1 << 20, "model", kPayload * 2));
  expect_nothing(OpenIn(files, 1 << 20, "model", kPayload, other_key));
  // Even under the name that the other one would look for.
  auto folder = *OpenIn(files, 6 * 4096, "other model");
  const auto whole = files.files.begin()->second;
  ASSERT_TRUE(folder->Write(BlockOf(0), PayloadOf(0), 0));
  const auto own = std::ranges::find_if(files.files, [](const auto& f) { return f.second.modified_ns == 0; });
  files.files[own->first] = whole;
  files.files["mine.txt"] = {};
  for (uint64_t i = 10; i < 15; ++i) ASSERT_TRUE(folder->Write(BlockOf(i), PayloadOf(i), 100));
  EXPECT_EQ(folder->foreign_blocks(), 0u);
  EXPECT_TRUE(files.files.contains("mine.txt"));
  EXPECT_LE(files.files.size(), 1u + 6u);
}

TEST(BlockFolderTest, WhatAnotherServerHoldsIsLeftAlone) {
  MemoryFiles files;
  {
    ASSERT_TRUE((*OpenIn(files))->Write(BlockOf(1), PayloadOf(1), 0));
  }
  files.locked = true;
  EXPECT_EQ(OpenIn(files).error().code, ErrorCode::kConflict);
}

TEST(BlockFolderTest, AFullDiskIsAnErrorAndHarmsNoOtherBlock) {
  MemoryFiles files;
  auto folder = *OpenIn(files);
  std::vector<std::byte> out;
  ASSERT_TRUE(folder->Write(BlockOf(1), PayloadOf(1), 0));
  files.full = true;
  EXPECT_EQ(folder->Write(BlockOf(2), PayloadOf(2), 0).error().code, ErrorCode::kIo);
  EXPECT_EQ(ReadCode(*folder, BlockOf(1), &out), kRead);
  EXPECT_EQ(ReadCode(*folder, BlockOf(2), &out), ErrorCode::kNotFound);
  EXPECT_EQ(OpenIn(files, 4095).error().code, ErrorCode::kInvalidArgument) << "not one block fits";
}

TEST(BlockFolderTest, ASmallerLimitKeepsTheMostRecent) {
  MemoryFiles files;
  {
    auto folder = *OpenIn(files);
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(folder->Write(BlockOf(i), PayloadOf(i), static_cast<int64_t>(i)));
  }
  files.files[files.files.begin()->first + std::string(kUnfinishedSuffix)] = {};
  auto folder = *OpenIn(files, 3 * 4096 + 100);
  ASSERT_EQ(folder->found().size(), 3u);
  EXPECT_EQ(folder->found().back(), BlockOf(9).name);
  EXPECT_EQ(files.files.size(), 3u);
}

// What comes back is what went in, or nothing, whatever happens in between.
TEST(BlockFolderTest, RandomWritesReadsRemovalsRestartsAndDamage) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Random random(seed);
    MemoryFiles files;
    auto folder = *OpenIn(files, 24 * 4096);
    std::map<uint64_t, bool> held;  // to: undamaged
    std::vector<std::byte> out;
    int served = 0;
    for (int step = 0; step < 1500; ++step) {
      const uint64_t i = random.Below(40);
      switch (random.Below(8)) {
        case 0:
        case 1:
        case 2:
          if (held.contains(i) || held.size() >= 24) break;
          files.full = random.Below(10) == 0;
          files.cut = random.Below(10) == 0;
          if (folder->Write(BlockOf(i), PayloadOf(i), step)) held[i] = !files.cut;
          files.full = files.cut = false;
          break;
        case 3:
          folder->Remove(BlockOf(i).name);
          held.erase(i);
          break;
        case 4:
          if (files.files.empty() || random.Below(4) != 0) break;
          {
            auto it = std::next(files.files.begin(), static_cast<int64_t>(random.Below(files.files.size())));
            if (!it->second.bytes.empty())
              it->second.bytes[random.Below(it->second.bytes.size())] ^= static_cast<std::byte>(1 + random.Below(255));
            for (auto& [key, whole] : held) {
              std::vector<std::byte> probe(kPayload);
              MemoryFiles copy = files;
              whole = whole && (*OpenIn(copy))->Read(BlockOf(key), probe, 0).has_value();
            }
          }
          break;
        case 5:
          if (random.Below(10) == 0) {
            folder.reset();
            folder = *OpenIn(files, 24 * 4096);
            std::erase_if(held, [&](const auto& h) {
              return std::ranges::find(folder->found(), BlockOf(h.first).name) == folder->found().end();
            });
          }
          break;
        default: {
          const ErrorCode code = ReadCode(*folder, BlockOf(i), &out);
          const auto it = held.find(i);
          if (it == held.end()) {
            ASSERT_EQ(code, ErrorCode::kNotFound);
          } else if (it->second) {
            ASSERT_EQ(code, kRead);
            ASSERT_EQ(out, PayloadOf(i));
            ++served;
          } else {
            ASSERT_EQ(code, ErrorCode::kCorruptData);
            held.erase(it);
          }
        }
      }
      ASSERT_LE(files.files.size(), 24u);
    }
    EXPECT_GT(served, 50);
  }
}

class RealFolderTest : public ::testing::Test {
 protected:
  RealFolderTest() : path_(fs::path(::testing::TempDir()) / ("kv" + std::to_string(getpid()))) {
    fs::remove_all(path_);
  }
  ~RealFolderTest() override { fs::remove_all(path_); }
  Result<std::unique_ptr<BlockFolder>> Open(uint64_t payload = kPayload, uint64_t bytes_max = 64 << 20) const {
    auto port = OpenFolder(path_);
    if (!port) return std::unexpected(port.error());
    return BlockFolder::Open(std::move(*port), std::make_unique<BlockSeal>(Key(), "model", payload), bytes_max);
  }
  const fs::path path_;
};

TEST_F(RealFolderTest, FilesAreTheOwnersAloneAndSurviveARestart) {
  std::vector<std::byte> out;
  {
    auto folder = Open();
    ASSERT_TRUE(folder) << folder.error().message;
    for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE((*folder)->Write(BlockOf(i), PayloadOf(i), 1'000'000'000 * (5 - i)));
    EXPECT_EQ(Open().error().code, ErrorCode::kConflict) << "one server for a model";
  }
  for (const auto& entry : fs::recursive_directory_iterator(path_))
    EXPECT_EQ(entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all), fs::perms::none);
  auto folder = *Open();
  ASSERT_EQ(folder->found().size(), 5u);
  EXPECT_EQ(folder->found().front(), BlockOf(4).name);
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(ReadCode(*folder, BlockOf(i), &out), kRead);
    EXPECT_EQ(out, PayloadOf(i));
  }
}

// A clock that starts at zero, and a chain that is deeper than its seconds: neither loses a block.
TEST_F(RealFolderTest, TimesBeforeTheEpochAreNoFailure) {
  auto folder = *Open();
  EXPECT_TRUE(folder->Write(BlockOf(1), PayloadOf(1), -5'000'000'001));
}

TEST_F(RealFolderTest, ALinkInsteadOfABlockIsNotFollowed) {
  auto folder = *Open();
  std::vector<std::byte> out;
  ASSERT_TRUE(folder->Write(BlockOf(1), PayloadOf(1), 0));
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(path_)) {
    if (entry.path().filename().string().size() == 32 && entry.is_regular_file()) file = entry.path();
  }
  fs::rename(file, path_ / "elsewhere");
  fs::create_symlink(path_ / "elsewhere", file);
  EXPECT_EQ(ReadCode(*folder, BlockOf(1), &out), ErrorCode::kIo);
}

TEST_F(RealFolderTest, AFolderThatCannotBeWrittenIsAnError) {
  std::ofstream(path_) << "a file";
  EXPECT_FALSE(Open());
  EXPECT_FALSE(OpenFolder("/proc/headrace"));
}

// A process that is killed while it writes leaves blocks that are whole or nothing.
TEST_F(RealFolderTest, AKillInTheMiddleOfWriting) {
  constexpr uint64_t kBig = 300'000;
  int blocks = 0;
  for (int round = 0; round < 12; ++round) {
    int ready[2];
    ASSERT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto folder = Open(kBig);
      if (!folder) _exit(1);
      for (uint64_t i = 0;; ++i) {
        const uint64_t id = static_cast<uint64_t>(round) * 1000 + i % 200;
        (void)(*folder)->Write(BlockOf(id), PayloadOf(id, kBig), 0);
        if (i == static_cast<uint64_t>(round)) (void)!write(ready[1], "x", 1);
      }
    }
    char byte;
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    int status;
    waitpid(child, &status, 0);
    close(ready[0]);
    close(ready[1]);
    auto folder = Open(kBig);
    ASSERT_TRUE(folder) << "the lock went with the process";
    std::vector<std::byte> out;
    for (uint64_t id = 0; id < 12'200; ++id) {
      if (std::ranges::find((*folder)->found(), BlockOf(id).name) == (*folder)->found().end()) continue;
      ASSERT_EQ(ReadCode(**folder, BlockOf(id), &out), kRead);
      ASSERT_EQ(out, PayloadOf(id, kBig));
      ++blocks;
    }
  }
  EXPECT_GT(blocks, 12);
}

}  // namespace
}  // namespace headrace
