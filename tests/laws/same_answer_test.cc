// Goal, the first law: every logit and every token of a request is the same to the bit whatever else happens: batch,
// chunk size, threads, instruction set, arrival order, preemption, cancelled neighbours (field fault O-12).
//
// In CI: a seeded model of each family, a seeded llama of four layers with grouped KV heads, odd widths and every
// compute type against the scalar reference; and the default model (HEADRACE_TEST_MODEL) across the fast instruction
// sets. Int8 KV and windows: kv_and_windows_test.cc. HEADRACE_LAWS=whole runs the default model against the reference
// too (a campaign: half an hour of two processors).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "laws/runner.h"
#include "model/seeded_float8.h"

namespace headrace {
namespace {

TEST(SameAnswerTest, SeededLlamaOfEveryTypeOnEveryInstructionSet) {
  const auto bytes =
      BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0,
                                  DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K,
                                  DType::kQ3_K, DType::kIQ4_NL, DType::kMXFP4}});
  const auto file = OpenSeededLlama(bytes);
  const auto prompts = MakePrompts(16, 330, 140, 12);
  Runner reference(*file, {.isa = "reference"});
  const auto truth = reference.Run(prompts);
  for (const KernelTable* table : UsableKernels()) {
    for (const Setting& s : {Setting{table->name, 2, 7, 1 << 12, 5}, Setting{table->name, 1, 64, 512, 6}}) {
      Runner runner(*file, s);
      ExpectSame(truth, runner.Run(prompts), Describe(s));
      if (s.kv_tokens == 512) {
        EXPECT_GT(runner.preemptions(), 0u) << "the pool is small enough to preempt";
      }
    }
  }
}

TEST(SameAnswerTest, SeededCheckpointsOfEightBitFloatsOnEveryInstructionSet) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    const Float8Bytes bytes = BuildSeededFloat8({.model = {.layers = 2, .width = 160, .ffn_width = 288}, .type = type});
    const auto file = OpenSeededFloat8(bytes);
    const auto prompts = MakePrompts(10, 330, 140, 8);
    const auto truth = Runner(*file, {.isa = "reference"}).Run(prompts);
    for (const KernelTable* table : UsableKernels()) {
      for (const Setting& s : {Setting{table->name, 2, 7, 1 << 12, 5}, Setting{table->name, 1, 64, 512, 6}}) {
        Runner runner(*file, s);
        ExpectSame(truth, runner.Run(prompts), std::string(Info(type).name) + " " + Describe(s));
      }
    }
  }
}

TEST(SameAnswerTest, SeededModelsOfEveryFamilyOnEveryInstructionSet) {
  for (const Family* family : Families()) {
    if (family->architecture.empty() || family->name == "llama") continue;  // the test above covers llama
    const auto bytes = BuildSeededLlama({.architecture = std::string(family->architecture),
                                         .layers = 7,  // Gemma's sixth sees everything
                                         .width = 96,
                                         .ffn_width = 160,
                                         .head_dim = 32,
                                         .context = 512,
                                         .window = 48,
                                         .types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kF16}});
    const auto file = OpenSeededLlama(bytes);
    const auto prompts = MakePrompts(10, 330, 140, 8);
    const auto truth = Runner(*file, {.isa = "reference"}).Run(prompts);
    for (const KernelTable* table : UsableKernels()) {
      for (const Setting& s : {Setting{table->name, 2, 7, 1 << 12, 5}, Setting{table->name, 1, 64, 512, 6}}) {
        Runner runner(*file, s);
        ExpectSame(truth, runner.Run(prompts), std::string(family->name) + " " + Describe(s));
      }
    }
  }
}

// A seed that is ignored because a neighbour has none, a penalty or a bias that shifts a neighbour's scores.
TEST(SameAnswerTest, O12SeedsPenaltiesAndBiasesOfNeighboursChangeNothing) {
  const auto bytes = BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0}});
  const auto file = OpenSeededLlama(bytes);
  const char* best = UsableKernels().back()->name;
  std::vector<Prompt> prompts = MakePrompts(6, 330, 100, 1);
  for (Prompt& p : prompts) p.max_tokens = 24;
  prompts[0].sampling = {.temperature = 0.8f, .seed = 42};
  prompts[1].sampling = {.temperature = 0};
  prompts[3].sampling = {.temperature = 0, .frequency_penalty = 1.05f};
  prompts[4].sampling = {.temperature = 0};
  const auto alone = Runner(*file, {.isa = best}).Run(prompts);
  for (const int32_t token : alone[4].tokens) prompts[4].logit_bias.emplace_back(token, kBanBias);
  prompts[5].sampling = {.temperature = 0.8f, .presence_penalty = 2.0f, .repetition_penalty = 1.5f, .seed = 42};
  for (uint64_t run = 1; run <= 20; ++run) {
    prompts[2].sampling = {.temperature = 1, .seed = run * 7919};  // drawn anew, as for a request without a seed
    const auto together = Runner(*file, {.isa = best, .threads = 2, .disorder = run}).Run(prompts);
    for (const size_t i : {0u, 1u}) ASSERT_EQ(together[i], alone[i]) << "request " << i << ", run " << run;
    for (const int32_t token : together[4].tokens) ASSERT_EQ(std::ranges::count(alone[4].tokens, token), 0);
  }
}

TEST(SameAnswerTest, ThirtyTwoPromptsOnTheFastTypes) {
  const auto bytes = BuildSeededLlama({.width = 288,
                                       .ffn_width = 544,
                                       .heads = 6,
                                       .kv_heads = 2,
                                       .head_dim = 64,
                                       .types = {DType::kQ4_1, DType::kQ8_0, DType::kQ4_1, DType::kF32},
                                       .tied = false});
  const auto file = OpenSeededLlama(bytes);
  const auto prompts = MakePrompts(36, 330, 2000, 24);
  const char* best = UsableKernels().back()->name;
  Runner whole(*file, {.isa = best, .rows_max = 2048});
  const auto truth = whole.Run(prompts);
  std::vector<Setting> settings = {{best, 1, 1, 1 << 14, 0}};
  for (const KernelTable* table : UsableKernels()) {
    if (std::string_view(table->name) == "reference") continue;  // the test above covers it
    settings.push_back({table->name, 2, 7, 1 << 14, 1});
    settings.push_back({table->name, 1, 64, 3000, 2});
    settings.push_back({table->name, 2, 2048, 1 << 14, 3});
  }
  for (const Setting& s : settings) {
    Runner runner(*file, s);
    ExpectSame(truth, runner.Run(prompts), Describe(s));
  }
}

TEST(SameAnswerTest, TheDefaultModelAcrossTheFastInstructionSets) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name the default model's file (./dev test sets it)";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const bool whole = LawsAreWhole();
  const auto prompts = MakePrompts(whole ? 32 : 9, 49152, whole ? 2000 : 140, 6);
  const char* best = UsableKernels().back()->name;
  Runner first(**file, {.isa = best, .threads = 2});
  const auto truth = first.Run(prompts);
  for (const KernelTable* table : UsableKernels()) {
    std::vector<Setting> settings = {{table->name, 2, 64, 1 << 12, 7}, {table->name, 1, 7, 1 << 12, 8}};
    if (std::string_view(table->name) == "reference") {
      if (!whole) continue;
      settings = {{table->name, 2, 64, 1 << 14, 7}};  // 15 tokens a second: once, and nothing computed twice
    }
    for (const Setting& s : settings) {
      Runner runner(**file, s);
      ExpectSame(truth, runner.Run(prompts), Describe(s));
      if (whole) std::printf("%zu prompts as alone on %s: %s\n", prompts.size(), best, Describe(s).c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace headrace
