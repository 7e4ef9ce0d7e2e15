// Goal: a packed model that was kept gives the same bytes as packing, and is never used when anything about it is
// wrong: cut, edited anywhere, of another version, of another model or of an edited one. What cannot be written is done
// without.
#include "model/pack_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "model/llama.h"
#include "model/seeded_float8.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

// Large enough for several segments: 12 MiB packed.
SeededLlama Large() { return {.layers = 6, .width = 512, .ffn_width = 2048, .types = {DType::kQ4_1, DType::kQ8_0}}; }

class PackCacheTest : public testing::Test {
 protected:
  PackCacheTest() : root_(fs::temp_directory_path() / fmt::format("headrace-pack-{}", getpid())) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~PackCacheTest() override {
    fs::permissions(root_, fs::perms::owner_all);
    fs::remove_all(root_);
  }

  std::string folder() const { return (root_ / "packs").string(); }

  static Bytes WeightsOf(const ModelFile& file, const std::string& folder) {
    const auto config = ReadModelConfig(file);
    EXPECT_TRUE(config);
    ComputePool pool(2);
    const auto hash = file.ContentHash();
    const auto model =
        LlamaModel::Load(file, *config, ReferenceKernels(), pool, {.context = 64, .rows_max = 1, .logit_rows_max = 1},
                         {.admit = {}, .pack_folder = folder, .content_hash = *hash});
    EXPECT_TRUE(model) << model.error().message;
    return {(*model)->weights().begin(), (*model)->weights().end()};
  }
  // The one packed model in the folder.
  std::string Kept() const {
    std::string kept;
    for (const auto& entry : fs::directory_iterator(folder())) {
      EXPECT_EQ(kept, "") << "more than one file: " << entry.path();
      EXPECT_EQ(entry.path().extension(), ".hrpack");
      kept = entry.path().string();
    }
    return kept;
  }
  static std::string ReadAll(const std::string& path) { return *ReadWholeFile(path, 1 << 30); }
  static void WriteAll(const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // What loading `file` says about the file that is kept, and that the weights are right whatever it holds.
  std::string Verdict(const ModelFile& file) const {
    const Bytes packed = WeightsOf(file, "");
    testing::internal::CaptureStdout();
    const Bytes loaded = WeightsOf(file, folder());
    const std::string said = testing::internal::GetCapturedStdout();
    EXPECT_EQ(loaded, packed) << "wrong weights would be served";
    return said;
  }

  const fs::path root_;
};

TEST_F(PackCacheTest, GivesTheSameBytesAndIsMadeOnce) {
  const Bytes model = BuildSeededLlama(Large());
  const auto file = OpenSeededLlama(model);
  const Bytes packed = WeightsOf(*file, "");
  EXPECT_GT(packed.size(), 2 * kPackSegmentBytes);
  EXPECT_EQ(WeightsOf(*file, folder()), packed);
  const std::string kept = Kept(), bytes = ReadAll(kept);
  const auto written = fs::last_write_time(kept);
  EXPECT_EQ(WeightsOf(*file, folder()), packed);
  EXPECT_EQ(fs::last_write_time(kept), written);
  EXPECT_EQ(ReadAll(kept), bytes);
  EXPECT_EQ(fs::status(kept).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(PackCacheTest, WhatIsCutOrEditedAnywhereIsMadeAgain) {
  const Bytes model = BuildSeededLlama(Large());
  const auto file = OpenSeededLlama(model);
  const Bytes packed = WeightsOf(*file, folder());
  const std::string kept = Kept(), good = ReadAll(kept);
  const auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  const size_t head = good.size() - packed.size();  // head, table, hashes and what fills the page
  struct Case {
    std::string bytes;
    const char* said;
  };
  std::vector<Case> cases = {{"", "no head"},
                             {good.substr(0, 71), "no head"},
                             {good.substr(0, head), "and should have"},
                             {good.substr(0, good.size() - 1), "and should have"},
                             {good + "x", "and should have"},
                             {flipped(0), "not a packed model"},
                             {flipped(8), "another version"},
                             {flipped(20), "another state of the model file"},
                             {flipped(50), "sizes"},
                             {flipped(58), "sizes"},
                             {flipped(66), "sizes"},
                             {flipped(72), "table"},
                             {flipped(72 + 40 * 20 + 9), "table"},
                             {flipped(head - 1), "hashes"},
                             {flipped(head), "are damaged"},
                             {flipped(head + packed.size() / 2), "are damaged"},
                             {flipped(good.size() - 1), "are damaged"},
                             {std::string(good.size(), '\0'), "not a packed model"}};
  for (const Case& c : cases) {
    WriteAll(kept, c.bytes);
    EXPECT_THAT(Verdict(*file), HasSubstr(c.said));
    EXPECT_EQ(ReadAll(kept), good) << c.said;
  }
}

TEST_F(PackCacheTest, EveryByteBeforeTheDataCounts) {
  const Bytes model = BuildSeededLlama({.layers = 1});
  const auto file = OpenSeededLlama(model);
  const Bytes packed = WeightsOf(*file, folder());
  const std::string kept = Kept(), good = ReadAll(kept);
  for (size_t at = 0; at < good.size() - packed.size(); at += 97) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    WriteAll(kept, bytes);
    ASSERT_EQ(WeightsOf(*file, folder()), packed);
    ASSERT_EQ(ReadAll(kept), good) << at;
  }
}

TEST_F(PackCacheTest, AnotherModelUnderItsNameIsNotTaken) {
  const Bytes one = BuildSeededLlama({.layers = 2, .seed = 1}), two = BuildSeededLlama({.layers = 2, .seed = 2});
  const auto first = OpenSeededLlama(one), second = OpenSeededLlama(two);
  WeightsOf(*first, folder());
  const std::string kept_first = Kept(), of_first = ReadAll(kept_first);
  fs::remove(kept_first);
  WeightsOf(*second, folder());
  const std::string kept_second = Kept();
  EXPECT_NE(kept_first, kept_second);
  WriteAll(kept_second, of_first);
  EXPECT_THAT(Verdict(*second), HasSubstr("another state of the model file"));
}

// ---- on disk, where the content hash is a sample ----

class PackedFileTest : public PackCacheTest {
 protected:
  PackedFileTest() : model_(BuildSeededLlama(Large())), path_((root_ / "m.gguf").string()) {
    WriteAll(path_, {reinterpret_cast<const char*>(model_.data()), model_.size()});
  }
  Bytes Load() const {
    const auto file = ModelFile::Open(path_);
    EXPECT_TRUE(file);
    return WeightsOf(**file, folder());
  }
  static void Settle() { std::this_thread::sleep_for(std::chrono::nanoseconds(kFileStateGrainNs + 100'000'000)); }

  const Bytes model_;
  const std::string path_;
};

TEST_F(PackedFileTest, AnEditedTensorIsNeverServedFromTheOldPack) {
  // A fresh file is not kept: an edit within the clock's grain would leave no trace.
  const Bytes packed = Load();
  EXPECT_FALSE(fs::exists(folder()) && !fs::is_empty(folder()));
  Settle();
  EXPECT_EQ(Load(), packed);
  const std::string kept = Kept(), pack = ReadAll(kept);
  // One byte in the middle of a tensor, outside of what the content hash reads, and the time of modification set back.
  const auto file = ModelFile::Open(path_);
  const TensorInfo& tensor = *(*file)->Find("blk.3.ffn_down.weight");
  const auto modified = fs::last_write_time(path_);
  const std::string hash = *(*file)->ContentHash();
  {
    std::fstream edit(path_, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(tensor.file_offset + tensor.bytes / 4 / 34 * 34 + 5);
    edit.seekg(at);
    const int byte = edit.get();
    edit.seekp(at);
    edit.put(static_cast<char>(byte ^ 0x10));
  }
  fs::last_write_time(path_, modified);
  const auto edited = ModelFile::Open(path_);
  ASSERT_EQ(*(*edited)->ContentHash(), hash) << "the edit must be one that the sample does not see";
  const Bytes truth = WeightsOf(**edited, "");
  ASSERT_NE(truth, packed);
  EXPECT_EQ(Load(), truth);
  EXPECT_EQ(ReadAll(kept), pack) << "too fresh to be kept";
  Settle();
  EXPECT_EQ(Load(), truth);
  EXPECT_NE(ReadAll(kept), pack);
  EXPECT_EQ(Load(), truth);
}

TEST_F(PackedFileTest, AFolderThatCannotBeWrittenIsDoneWithout) {
  Settle();
  const Bytes packed = WeightsOf(*OpenSeededLlama(model_), "");
  WriteAll(folder(), "a file where the folder should be");
  testing::internal::CaptureStdout();
  EXPECT_EQ(Load(), packed);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("packed weights are not kept"));
  EXPECT_EQ(said.find("not kept"), said.rfind("not kept")) << "said once";
  fs::remove(folder());
  if (geteuid() == 0) return;  // root writes anywhere
  fs::create_directories(folder());
  fs::permissions(folder(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(Load(), packed);
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(PackedFileTest, AFullDiskLeavesNothingBehind) {
  Settle();
  const Bytes packed = WeightsOf(*OpenSeededLlama(model_), "");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{6 << 20, before.rlim_max};
  testing::internal::CaptureStdout();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Bytes loaded = Load();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("packed weights are not kept (cannot write"));
  EXPECT_EQ(loaded, packed);
  EXPECT_TRUE(fs::is_empty(folder()));
  EXPECT_EQ(Load(), packed);
  EXPECT_NE(Kept(), "");
}

TEST_F(PackedFileTest, WhileAnotherProcessWritesThisOneDoesWithout) {
  Settle();
  const Bytes packed = Load();
  const std::string kept = Kept();
  fs::rename(kept, kept + ".tmp");
  const int fd = open((kept + ".tmp").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  testing::internal::CaptureStdout();
  EXPECT_EQ(Load(), packed);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("another process writes"));
  EXPECT_FALSE(fs::exists(kept));
  EXPECT_EQ(fs::file_size(kept + ".tmp"), ReadAll(kept + ".tmp").size());
  close(fd);  // it was killed: what it left is used again
  EXPECT_EQ(Load(), packed);
  EXPECT_EQ(Kept(), kept);
}

TEST_F(PackedFileTest, ProcessesAtOnceAllServeTheSameWeights) {
  Settle();
  const Bytes packed = WeightsOf(*OpenSeededLlama(model_), "");
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(Load() == packed && Load() == packed ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Load(), packed);
  EXPECT_NE(Kept(), "");
}

// ---- version ----

std::string PackedHash(const ModelFile& file) {
  ComputePool pool(1);
  const auto loaded = LlamaModel::Load(file, *ReadModelConfig(file), ReferenceKernels(), pool,
                                       {.context = 64, .rows_max = 1, .logit_rows_max = 1});
  EXPECT_TRUE(loaded) << loaded.error().message;
  unsigned char digest[32];
  size_t size = 0;
  const auto weights = (*loaded)->weights();
  EXPECT_EQ(EVP_Q_digest(nullptr, "SHA256", nullptr, weights.data(), weights.size(), digest, &size), 1);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

TEST(PackVersionTest, TheVersionNamesTheBytes) {
  // Other bytes need another kPackVersion: else an older file would be served to newer kernels. (A changed quantiser of
  // the seeded models changes them, too, and needs none.)
  const Bytes model =
      BuildSeededLlama({.layers = 2,
                        .width = 256,
                        .types = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                  DType::kQ5_1, DType::kQ8_0, DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                                  DType::kQ6_K, DType::kIQ4_NL, DType::kMXFP4},
                        .tied = false});
  const Float8Bytes e4m3 = BuildSeededFloat8({.model = {.layers = 1, .width = 160}});
  const Float8Bytes e5m2 = BuildSeededFloat8({.model = {.layers = 1, .width = 160}, .type = DType::kF8E5M2});
  EXPECT_EQ(kPackVersion, 2u);
  EXPECT_EQ(PackedHash(*OpenSeededLlama(model)), "a68e751aa5be5d8bdaa483c7872b8ac247d0d0e66c11cb2b172ea758e110de3f");
  EXPECT_EQ(PackedHash(*OpenSeededFloat8(e4m3)), "f34df8f3218525a0f747b9aa514e827c432eb5e7b9f32d49d2d3723fed7222ea");
  EXPECT_EQ(PackedHash(*OpenSeededFloat8(e5m2)), "08ac2013c441c9e3a721021ed0f268da44c131554488ce15adc9848b4f622b00");
}

}  // namespace
}  // namespace headrace
