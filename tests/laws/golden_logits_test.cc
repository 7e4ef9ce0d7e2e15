// Goal: the logits have the same bits on every CPU (Intel, AMD, NEON) and in every build: 64-bit hashes of them are
// committed in golden_logits.txt. Seeded models of every format and family with int16 and int8 KV, and the default
// model (HEADRACE_TEST_MODEL), on each instruction set that this CPU has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "executor/cpu/cpu_executor.h"
#include "kv_cache/block_pool.h"
#include "model/seeded_float8.h"

namespace headrace {
namespace {

constexpr int32_t kChunk = 48;  // not a divisor of the prompts' lengths, nor of a page
constexpr int64_t kContext = 256;

// The lines of golden_logits.txt: what is computed, and the hash of its logits.
std::map<std::string, std::string> ReadGoldens() {
  std::map<std::string, std::string> goldens;
  std::ifstream in(HEADRACE_SOURCE_DIR "/tests/laws/golden_logits.txt");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, hash;
    if (words >> name >> hash) goldens[name] = hash;
  }
  return goldens;
}

// Ids that do not depend on the library's distributions.
std::vector<int32_t> PromptOf(int32_t tokens, int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < tokens; ++i)
    ids.push_back(static_cast<int32_t>(KeyedRandom(static_cast<uint64_t>(tokens), static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocab_size)));
  return ids;
}

// Of the logits of every position of one sequence.
uint64_t HashOfLogits(CpuExecutor& executor, const std::vector<int32_t>& ids) {
  StepInput input;
  uint64_t hash = 0;
  const auto count = static_cast<int32_t>(ids.size());
  for (int32_t first = 0; first < count; first += kChunk) {
    const int32_t rows = std::min(kChunk, count - first);
    input.Clear();
    for (int32_t b = 0; b < BlocksFor(count); ++b) input.blocks.push_back(b);
    input.spans.push_back({1, 0, rows, first, count, 0, static_cast<int32_t>(input.blocks.size())});
    for (int32_t r = 0; r < rows; ++r) {
      input.token_ids.push_back(ids[static_cast<size_t>(first + r)]);
      input.samples.push_back({.row = r, .params = {}});
    }
    const float* logits = *executor.ForwardOnly(input);
    const int64_t floats = int64_t{rows} * executor.Describe().vocab_size;
    for (int64_t i = 0; i < floats; ++i) hash = SplitMix64(hash ^ std::bit_cast<uint32_t>(logits[i]));
  }
  return hash;
}

std::optional<uint64_t> HashOfModel(const ModelFile& file, const std::vector<int32_t>& lengths, KvType kv_type,
                                    const char* isa) {
  const auto config = ReadModelConfig(file);
  if (!config) return std::nullopt;
  CpuExecutorOptions options{.threads = 1,
                             .isa = isa,
                             .context = kContext,
                             .kv_type = kv_type,
                             .rows_max = kChunk,
                             .logit_rows_max = kChunk,
                             .sequences_max = 1};
  options.kv_bytes = static_cast<uint64_t>(config->KvBytesPerToken(kv_type) * kContext);
  const auto executor = CpuExecutor::Load(file, *config, options);
  if (!executor) return std::nullopt;
  uint64_t hash = 0;
  for (const int32_t tokens : lengths)
    hash = SplitMix64(hash ^ HashOfLogits(**executor, PromptOf(tokens, config->vocab_size)));
  return hash;
}

class GoldenLogitsTest : public testing::Test {
 protected:
  void Check(const ModelFile& file, const std::string& name, const std::vector<int32_t>& lengths, KvType kv_type,
             const char* isa) {
    const std::string key = name + (kv_type == KvType::kInt8 ? "-int8" : "-int16");
    const auto hash = HashOfModel(file, lengths, kv_type, isa);
    ASSERT_TRUE(hash) << key << " does not load";
    const std::string line = fmt::format("{:016x}", *hash);
    if (goldens_[key] == line) return;
    changed_[key] = line;
    ADD_FAILURE() << key << " on " << isa << ": hash " << line << ", golden_logits.txt has "
                  << (goldens_[key].empty() ? "none" : goldens_[key]);
  }
  void TearDown() override {
    if (changed_.empty()) return;
    std::string lines;
    for (const auto& [name, hash] : changed_) lines += name + " " + hash + "\n";
    ADD_FAILURE() << "Bits of logits differ from those of other CPUs and builds. Is the change intended? Then raise "
                     "kNumericsVersion (kInt8KvVersion, where int8 KV alone has changed) in "
                     "src/executor/cpu/cpu_executor.cc and put these lines into "
                     "tests/laws/golden_logits.txt:\n"
                  << lines;
  }

 private:
  std::map<std::string, std::string> goldens_ = ReadGoldens();
  std::map<std::string, std::string> changed_;
};

void CheckOnEveryTable(const auto& check) {
  for (const KernelTable* table : UsableKernels()) {
    for (const KvType kv_type : {KvType::kInt16, KvType::kInt8}) check(kv_type, table->name);
  }
}

TEST_F(GoldenLogitsTest, SeededLlamaOfEveryFormat) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
        DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kMXFP4}) {
    // 256 columns everywhere: the blocks of the K formats.
    const auto bytes = BuildSeededLlama(
        {.layers = 2, .ffn_width = 256, .head_dim = 64, .context = kContext, .types = {type}, .tied = false});
    const auto file = OpenSeededLlama(bytes);
    CheckOnEveryTable([&](KvType kv_type, const char* isa) {
      Check(*file, "llama-" + std::string(Info(type).name), {1, 100}, kv_type, isa);
    });
  }
}

TEST_F(GoldenLogitsTest, SeededCheckpointsOfEightBitFloats) {
  for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
    const Float8Bytes bytes = BuildSeededFloat8(
        {.model = {.layers = 2, .width = 160, .ffn_width = 288, .head_dim = 64, .context = kContext}, .type = type});
    const auto file = OpenSeededFloat8(bytes);
    CheckOnEveryTable([&](KvType kv_type, const char* isa) {
      Check(*file, "llama-" + std::string(Info(type).name), {1, 100}, kv_type, isa);
    });
  }
}

TEST_F(GoldenLogitsTest, SeededModelOfEveryFamily) {
  for (const Family* family : Families()) {
    if (family->architecture.empty()) continue;  // mistral's GGUF files are llama's
    const auto bytes = BuildSeededLlama({.architecture = std::string(family->architecture),
                                         .layers = 7,  // Gemma's sixth sees everything
                                         .width = 96,
                                         .ffn_width = 160,
                                         .head_dim = 32,
                                         .context = kContext,
                                         .window = 48,
                                         .types = {DType::kQ4_1, DType::kQ8_0, DType::kF16}});
    const auto file = OpenSeededLlama(bytes);
    CheckOnEveryTable([&](KvType kv_type, const char* isa) {
      Check(*file, std::string(family->name) + "-family", {1, 130}, kv_type, isa);
    });
  }
}

// Hugging Face folders: windows of Mistral and Qwen2, and ropes of Llama 3, YaRN and LongRoPE.
TEST_F(GoldenLogitsTest, FoldersOfTheModelTests) {
  for (const char* name :
       {"llama", "mistral", "qwen2", "qwen2_window", "qwen3", "gemma3", "phi3", "phi3_short", "phi3_long", "granite"}) {
    const auto file = ModelFile::Open(std::string(HEADRACE_SOURCE_DIR "/src/model/testdata/families/") + name);
    ASSERT_TRUE(file) << file.error().message;
    CheckOnEveryTable(
        [&](KvType kv_type, const char* isa) { Check(**file, std::string(name) + "-folder", {1, 60}, kv_type, isa); });
  }
}

TEST_F(GoldenLogitsTest, TheDefaultModel) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name the default model's file (./dev test sets it)";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  CheckOnEveryTable(
      [&](KvType kv_type, const char* isa) { Check(**file, "smollm2-135m-instruct-q4_1", {5}, kv_type, isa); });
  const char* best = UsableKernels().back()->name;
  for (const KvType kv_type : {KvType::kInt16, KvType::kInt8})
    Check(**file, "smollm2-135m-instruct-q4_1-long", {130, 70}, kv_type, best);
}

}  // namespace
}  // namespace headrace
