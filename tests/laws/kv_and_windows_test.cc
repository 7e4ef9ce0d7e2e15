// Goal: the first law holds with int8 keys and values, and for sliding windows shorter than the prompt, in every family
// that has them: each instruction set, chunk size, thread count and arrival order gives the bits of the reference
// alone.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "laws/runner.h"

namespace headrace {
namespace {

constexpr int64_t kContext = 512;

// Chunks of one row, across pages of 64 and of the whole prompt; a pool so small that requests are preempted.
std::vector<Setting> SettingsOf(const KernelTable& table, KvType kv_type) {
  const char* isa = table.name;
  std::vector<Setting> settings = {{isa, 2, 7, 1 << 12, 5, kv_type}, {isa, 1, 64, kContext, 6, kv_type}};
  if (&table == UsableKernels().back()) {
    settings.push_back({isa, 1, 1, 1 << 12, 7, kv_type});
    settings.push_back({isa, 3, 256, 1 << 12, 8, kv_type});
  }
  return settings;
}

void ExpectTheLaw(const ModelFile& file, const std::vector<Prompt>& prompts, KvType kv_type, const std::string& what) {
  const auto truth = Runner(file, {.isa = "reference", .kv_type = kv_type}).Run(prompts);
  for (const KernelTable* table : UsableKernels()) {
    for (const Setting& s : SettingsOf(*table, kv_type))
      ExpectSame(truth, Runner(file, s).Run(prompts), what + " " + Describe(s));
  }
}

TEST(KvAndWindowsTest, Int8KeysAndValuesOfEveryFamilyOnEveryInstructionSet) {
  for (const Family* family : Families()) {
    if (family->architecture.empty()) continue;  // mistral's GGUF files are llama's
    const auto bytes = BuildSeededLlama({.architecture = std::string(family->architecture),
                                         .layers = 2,
                                         .width = 96,
                                         .ffn_width = 160,
                                         .head_dim = 32,
                                         .context = kContext,
                                         .window = 48,
                                         .types = {DType::kQ4_1, DType::kQ8_0}});
    const auto file = OpenSeededLlama(bytes);
    const auto prompts = MakePrompts(10, 330, 140, 8);
    ExpectTheLaw(*file, prompts, KvType::kInt8, std::string(family->name));
    const char* best = UsableKernels().back()->name;
    const auto int8 = Runner(*file, {.isa = best, .kv_type = KvType::kInt8}).Run(prompts);
    const auto int16 = Runner(*file, {.isa = best}).Run(prompts);
    EXPECT_NE(int8[4].logits, int16[4].logits) << family->name << ": the type changes nothing";
  }
}

// A model with a window, as its own bytes.
struct Windowed {
  std::vector<std::byte> weights;
  std::string config;  // of a Hugging Face folder
  std::unique_ptr<ModelFile> file;
};

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// One of the tiny folders of the model tests, its first layer global and the rest with the window; 0: all global.
std::unique_ptr<Windowed> FromFolder(const std::string& name, int64_t window) {
  auto m = std::make_unique<Windowed>();
  const std::string folder = std::string(HEADRACE_SOURCE_DIR "/src/model/testdata/families/") + name;
  auto json = nlohmann::json::parse(ReadWhole(folder + "/config.json"));
  json.erase("layer_types");
  json["max_position_embeddings"] = kContext;
  json["max_window_layers"] = 1;
  json["use_sliding_window"] = window > 0;
  json["sliding_window"] = window > 0 ? nlohmann::json(window) : nlohmann::json(nullptr);
  m->config = json.dump();
  const std::string weights = ReadWhole(folder + "/model.safetensors");
  const auto span = std::as_bytes(std::span(weights));
  m->weights.assign(span.begin(), span.end());
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(m->weights, "model.safetensors"));
  sources.push_back(SourceFromMemory(std::as_bytes(std::span(m->config)), "config.json"));
  auto file = ModelFile::FromSource(std::move(sources));
  EXPECT_TRUE(file) << file.error().message;
  m->file = std::move(*file);
  return m;
}

std::unique_ptr<Windowed> Seeded(const std::string& architecture, int64_t window) {
  auto m = std::make_unique<Windowed>();
  m->weights = BuildSeededLlama({.architecture = architecture,
                                 .layers = 7,  // Gemma's sixth sees everything
                                 .width = 96,
                                 .ffn_width = 160,
                                 .head_dim = 32,
                                 .context = kContext,
                                 .window = window,
                                 .types = {DType::kQ4_1, DType::kQ8_0}});
  m->file = OpenSeededLlama(m->weights);
  return m;
}

class WindowTest : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<Windowed> Model(int64_t window) {
    const std::string name = GetParam();
    return name == "gemma3" || name == "phi3" ? Seeded(name, window) : FromFolder(name, window);
  }
  // Shorter and longer than the windows of 16 and 48, and than a page.
  static std::vector<Prompt> Prompts() {
    auto prompts = MakePrompts(12, 96, 200, 8);
    const int64_t lengths[] = {4, 15, 16, 17, 40, 47, 48, 49, 63, 65, 113, 200};
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::vector<int32_t>& ids = prompts[i].ids;
      while (std::ssize(ids) < lengths[i]) ids.push_back(static_cast<int32_t>((ids.size() * 37 + i) % 96));
      ids.resize(static_cast<size_t>(lengths[i]));
    }
    return prompts;
  }
};

TEST_P(WindowTest, SameBitsForEverySetting) {
  for (const int64_t window : {16, 48}) {
    const auto m = Model(window);
    for (const KvType kv_type : {KvType::kInt16, KvType::kInt8}) {
      if (kv_type == KvType::kInt8 && window == 48) continue;
      ExpectTheLaw(*m->file, Prompts(), kv_type, std::string(GetParam()) + " window=" + std::to_string(window));
    }
  }
}

// The window is there: it changes each answer that is longer, and no other.
TEST_P(WindowTest, HidesWhatLiesBeforeItAndNothingElse) {
  constexpr int64_t kWindow = 48;
  const auto windowed = Model(kWindow), global = Model(0);
  ASSERT_EQ(ReadModelConfig(*windowed->file)->window, kWindow);
  const char* best = UsableKernels().back()->name;
  const auto prompts = Prompts();
  const auto with = Runner(*windowed->file, {.isa = best}).Run(prompts);
  const auto without = Runner(*global->file, {.isa = best}).Run(prompts);
  int hidden = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const auto& [position, hash] : with[i].logits) {
      if (!without[i].logits.contains(position)) continue;
      const bool first = position == static_cast<uint64_t>(prompts[i].ids.size());
      if (static_cast<int64_t>(position) <= kWindow) {
        EXPECT_EQ(hash, without[i].logits.at(position)) << "prompt of " << prompts[i].ids.size() << " at " << position;
      } else if (first) {
        EXPECT_NE(hash, without[i].logits.at(position)) << "prompt of " << prompts[i].ids.size();
        ++hidden;
      }
    }
  }
  EXPECT_EQ(hidden, 5) << "prompts are longer than the window";
}

INSTANTIATE_TEST_SUITE_P(Families, WindowTest, testing::Values("gemma3", "phi3", "mistral", "qwen2_window", "qwen3"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace headrace
