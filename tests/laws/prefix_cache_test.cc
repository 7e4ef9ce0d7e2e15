// Goal: the first law with the prefix cache: an answer is the same to the bit without the cache, cold, warm, beside
// others that share its prompt, preempted, and restored from memory or disk; and a wrong cached block would be noticed,
// since these tests then fail.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "laws/runner.h"

namespace headrace {
namespace {

// Prompts that begin like one of the first two, for a part that ends inside or at the end of a block.
std::vector<Prompt> SharingPrompts(size_t count, int32_t vocab_size, int64_t new_tokens) {
  std::vector<Prompt> prompts = MakePrompts(count, vocab_size, 200, new_tokens);
  Random random(17);
  for (size_t i = 0; i < 2; ++i) {
    while (prompts[i].ids.size() < 192)
      prompts[i].ids.push_back(static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab_size))));
  }
  const int64_t shared[] = {64, 128, 192, 100, 191};
  for (size_t i = 2; i < prompts.size(); ++i) {
    const std::vector<int32_t>& from = prompts[i % 2].ids;
    std::vector<int32_t>& ids = prompts[i].ids;
    ids.resize(std::min<size_t>(ids.size(), 60));
    ids.insert(ids.begin(), from.begin(), from.begin() + shared[i % std::size(shared)]);
    if (i % 7 == 3) ids = from;  // the very prompt
  }
  return prompts;
}

void ExpectTheLaw(const ModelFile& file, const std::vector<Prompt>& prompts, const char* isa, KvType kv_type) {
  const Setting off{.isa = isa, .kv_type = kv_type, .prefix_cache = false};
  Runner without(file, off);
  const auto truth = without.Run(prompts);
  EXPECT_EQ(without.prefix_hit_tokens(), 0u);

  Runner alone(file, {.isa = isa, .kv_type = kv_type});
  ExpectSame(truth, alone.Run(prompts), "cold, then what the ones before it left");
  const uint64_t cold_hits = alone.prefix_hit_tokens();
  EXPECT_GT(cold_hits, 0u);
  ExpectSame(truth, alone.Run(prompts), "warm");
  EXPECT_GT(alone.prefix_hit_tokens(), 2 * cold_hits);

  for (const Setting& s : {Setting{isa, 2, 40, 1 << 12, 3, kv_type}, Setting{isa, 1, 64, 512, 4, kv_type}}) {
    Runner together(file, s);
    ExpectSame(truth, together.Run(prompts), Describe(s));
    ExpectSame(truth, together.Run(prompts), "again, " + Describe(s));
    EXPECT_GT(together.prefix_hit_tokens(), 0u);
    if (s.kv_tokens == 512) {
      EXPECT_GT(together.preemptions(), 0u) << "the pool is small enough to preempt";
    }
  }

  Runner wrong(file, {.isa = isa, .kv_type = kv_type, .wrong_block = true});
  const auto answers = wrong.Run(prompts);
  size_t noticed = 0;
  for (size_t i = 0; i < truth.size(); ++i) noticed += answers[i].logits != truth[i].logits;
  EXPECT_GE(noticed, truth.size() / 2) << "a wrong block went unnoticed";
}

// Restored blocks are the computed ones: from memory, from disk after a restart, beside others, from damaged files.
void ExpectTheLawBelowThePool(const ModelFile& file, const std::vector<Prompt>& prompts, const char* isa,
                              KvType kv_type) {
  const auto truth = Runner(file, {.isa = isa, .kv_type = kv_type, .prefix_cache = false}).Run(prompts);
  Setting memory{.isa = isa, .kv_tokens = 512, .kv_type = kv_type, .memory_tier_blocks = 200};
  for (const uint64_t disorder : {0, 5}) {
    memory.disorder = disorder;
    Runner runner(file, memory);
    ExpectSame(truth, runner.Run(prompts), "a small pool over memory, " + Describe(memory));
    ExpectSame(truth, runner.Run(prompts), "again, " + Describe(memory));
    EXPECT_GT(runner.tier().memory->stats().restored.load(), 0u);
  }

  Setting disk{
      .isa = isa, .kv_type = kv_type, .cache_folder = ::testing::TempDir() + "law_cache" + std::to_string(getpid())};
  std::filesystem::remove_all(disk.cache_folder);
  ExpectSame(truth, Runner(file, disk).Run(prompts), "cold, over disk");
  for (const uint64_t disorder : {0, 6}) {
    disk.disorder = disorder;
    Runner restarted(file, disk);
    ExpectSame(truth, restarted.Run(prompts), "restored from disk after a restart, " + Describe(disk));
    EXPECT_GT(restarted.tier().disk->stats().restored.load(), 3u);
    EXPECT_EQ(restarted.tier().disk->stats().failed.load(), 0u);
    EXPECT_EQ(restarted.tier().disk->stats().damaged.load(), 0u);
  }
  disk.wrong_restore = true;
  const auto wrong = Runner(file, disk).Run(prompts);
  size_t noticed = 0;
  for (size_t i = 0; i < truth.size(); ++i) noticed += wrong[i].logits != truth[i].logits;
  EXPECT_GE(noticed, truth.size() / 4) << "one wrong byte of a restored block went unnoticed";
  disk.wrong_restore = false;

  Random random(9);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(disk.cache_folder)) {
    if (!entry.is_regular_file() || entry.file_size() == 0 || random.Below(3) != 0) continue;
    std::fstream damaged(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(random.Below(entry.file_size()));
    damaged.seekg(at);
    const int byte = damaged.get();
    damaged.seekp(at);
    damaged.put(static_cast<char>(byte ^ 1));
  }
  Runner over_damage(file, disk);
  ExpectSame(truth, over_damage.Run(prompts), "every third file damaged");
  EXPECT_GT(over_damage.tier().disk->stats().damaged.load(), 0u);
  std::filesystem::remove_all(disk.cache_folder);
}

TEST(PrefixCacheLawTest, SeededLlama) {
  const auto bytes = BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kQ4_K}});
  const auto file = OpenSeededLlama(bytes);
  const auto prompts = SharingPrompts(12, 330, 20);
  for (const KernelTable* table : UsableKernels()) {
    for (const KvType kv_type : {KvType::kInt16, KvType::kInt8}) {
      ExpectTheLaw(*file, prompts, table->name, kv_type);
      ExpectTheLawBelowThePool(*file, prompts, table->name, kv_type);
    }
  }
}

// Layers with windows share the pool with the others, so a hit has all that they see.
TEST(PrefixCacheLawTest, SeededGemmaWithWindows) {
  const auto bytes = BuildSeededLlama(SeededGemmaWithWindows());
  const auto file = OpenSeededLlama(bytes);
  ExpectTheLaw(*file, SharingPrompts(12, 330, 20), UsableKernels().back()->name, KvType::kInt16);
}

TEST(PrefixCacheLawTest, TheDefaultModel) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name the default model's file (./dev test sets it)";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const auto prompts = SharingPrompts(8, 49152, 12);
  ExpectTheLaw(**file, prompts, UsableKernels().back()->name, KvType::kInt16);
  ExpectTheLawBelowThePool(**file, prompts, UsableKernels().back()->name, KvType::kInt16);
}

}  // namespace
}  // namespace headrace
