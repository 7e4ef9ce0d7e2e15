// Goal: each family's logits are those of transformers, from a Hugging Face folder: names, norms, biases, multipliers,
// rope of each layer, windows. tests/oracle/make_family_goldens.py made the folders; a setting that is left out moves
// their logits by far more than the tolerance. What a family does not have is refused by name.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "model/families/family.h"
#include "model/llama.h"
#include "model/seeded_llama.h"
#include "model/test_logits.h"

namespace headrace {
namespace {

const std::string kFolder = HEADRACE_SOURCE_DIR "/src/model/testdata/families/";

template <typename T>
std::vector<T> ReadAll(const ModelFile& file, const char* name) {
  const TensorInfo* tensor = file.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  std::vector<T> out(tensor->bytes / sizeof(T));
  EXPECT_TRUE(file.Read(*tensor, 0, std::as_writable_bytes(std::span(out))));
  return out;
}

class FamilyGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGoldenTest, LogitsAreThoseOfTransformers) {
  const std::string folder = kFolder + GetParam();
  const auto file = ModelFile::Open(folder);
  ASSERT_TRUE(file) << file.error().message;
  const auto golden = ModelFile::Open(folder + "/golden.safetensors");
  ASSERT_TRUE(golden) << golden.error().message;
  auto ids = ReadAll<int32_t>(**golden, "ids");
  const auto expected = ReadAll<float>(**golden, "logits");
  const auto config = ReadModelConfig(**file);
  ASSERT_TRUE(config) << config.error().message;
  const auto context = static_cast<int64_t>(ids.size());
  for (const int32_t chunk : {64, 7, 1}) {
    const auto logits = LogitsOf(**file, ids, context, chunk);
    ASSERT_TRUE(logits) << logits.error().message;
    double error = 0, square = 0;
    for (size_t i = 0; i < logits->size(); ++i) {
      const auto truth = static_cast<double>(expected[i]);
      error += std::pow(static_cast<double>((*logits)[i]) - truth, 2);
      square += truth * truth;
    }
    const double relative = std::sqrt(error / square);
    // What the int16 keys, values, queries and weights round off: 1.0e-4 to 2.6e-4. (A float16 cache: 2e-4 to 9e-4.)
    EXPECT_LT(relative, 5e-4) << GetParam() << ": " << ids.size() << " tokens in chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGoldenTest,
                         testing::Values("llama", "mistral", "qwen2", "qwen2_window", "qwen3", "gemma3", "phi3",
                                         "phi3_short", "phi3_long", "granite"),
                         [](const auto& name) { return std::string(name.param); });

// ---- settings ------------------------------------------------------------------------------------------------------

// A folder whose only tensor is the embedding. Keeps what it is made of.
struct Folder {
  std::string config;
  std::vector<std::byte> weights;

  Folder(const std::string& model_type, const std::string& settings, const char* dtype = "F32") {
    config = R"({"model_type":")" + model_type +
             R"(","hidden_size":640,"intermediate_size":64,"num_hidden_layers":8,"num_attention_heads":4,
    "num_key_value_heads":1,"vocab_size":2,"max_position_embeddings":32768)" +
             settings + "}";
    const int bytes = std::string_view(dtype) == "F32" ? 5120 : 2560;
    const std::string header = fmt::format(
        R"({{"model.embed_tokens.weight":{{"dtype":"{}","shape":[2,640],"data_offsets":[0,{}]}}}})", dtype, bytes);
    weights.resize(8 + header.size() + static_cast<size_t>(bytes));
    const uint64_t size = header.size();
    std::memcpy(weights.data(), &size, 8);
    std::memcpy(weights.data() + 8, header.data(), header.size());
  }
  Result<ModelConfig> Read() const {
    std::vector<std::unique_ptr<ByteSource>> sources;
    sources.push_back(SourceFromMemory(weights, "model.safetensors"));
    sources.push_back(SourceFromMemory(std::as_bytes(std::span(config)), "config.json"));
    HR_ASSIGN_OR_RETURN(const auto file, ModelFile::FromSource(std::move(sources)));
    return ReadModelConfig(*file);
  }
};

TEST(FamilySettingsTest, Gemma3InTheOlderSpelling) {
  const std::string settings =
      R"(,"head_dim":256,"query_pre_attn_scalar":168,"sliding_window":512,"sliding_window_pattern":6,
      "rope_theta":1000000.0,"rope_local_base_freq":20000.0,"rope_scaling":{"rope_type":"linear","factor":8.0})";
  const auto c = Folder("gemma3_text", settings).Read();
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->rope.base, 1e6);
  EXPECT_EQ(c->rope.factor, 8.0);
  EXPECT_EQ(c->rope.scaling, RopeConfig::Scaling::kLinear);
  ASSERT_TRUE(c->window_rope);
  EXPECT_EQ(c->window_rope->base, 20000.0);
  EXPECT_EQ(c->window_rope->scaling, RopeConfig::Scaling::kNone);
  EXPECT_EQ(c->WindowOf(4), 512);
  EXPECT_EQ(c->WindowOf(5), 0);
  EXPECT_EQ(c->WindowOf(6), 512);
  EXPECT_FLOAT_EQ(c->attention_scale, 1 / std::sqrt(168.0f));
  EXPECT_FLOAT_EQ(c->embedding_scale, std::sqrt(640.0f));
  // The constant has the type of the embedding, as transformers computes: 25.25 and not 25.298.
  EXPECT_EQ(Folder("gemma3_text", settings, "BF16").Read()->embedding_scale, 25.25f);
}

TEST(FamilySettingsTest, Gemma3DefaultsAreThoseOfItsConfiguration) {
  const auto c = Folder("gemma3_text", R"(,"sliding_window":512)").Read();
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->head_dim, 256);
  EXPECT_EQ(c->rope.dims, 256);
  EXPECT_EQ(c->window_rope->dims, 256);
  EXPECT_EQ(c->rope.base, 1e6);
  EXPECT_EQ(c->window_rope->base, 1e4);
  EXPECT_EQ(c->attention_scale, 1 / 16.0f);
}

TEST(FamilySettingsTest, WindowsThatHideNothingAreNone) {
  EXPECT_EQ(Folder("mistral", R"(,"sliding_window":null)").Read()->window, 0);
  EXPECT_EQ(Folder("mistral", R"(,"sliding_window":32768)").Read()->window, 0);
  EXPECT_EQ(Folder("mistral", R"(,"sliding_window":4096)").Read()->window, 4096);
  EXPECT_EQ(Folder("qwen2", R"(,"sliding_window":4096,"use_sliding_window":false)").Read()->window, 0);
  EXPECT_EQ(Folder("qwen2", R"(,"sliding_window":4096,"use_sliding_window":true,"max_window_layers":8)").Read()->window,
            0);
  const auto c = Folder("qwen2", R"(,"sliding_window":4096,"use_sliding_window":true,"max_window_layers":7)").Read();
  EXPECT_EQ(c->WindowOf(6), 0);
  EXPECT_EQ(c->WindowOf(7), 4096);
}

TEST(FamilySettingsTest, LongRopeInTheOlderSpelling) {
  std::string list = "1.5";
  for (int i = 1; i < 80; ++i) list += ",1.5";
  const auto rope = [&](const char* type, const std::string& factors) {
    return Folder("phi3", fmt::format(R"(,"original_max_position_embeddings":4096,
        "rope_scaling":{{"type":"{}",{}}})",
                                      type, factors));
  };
  const std::string both = fmt::format(R"("short_factor":[{}],"long_factor":[{}])", list, list);
  for (const char* type : {"longrope", "su"}) {
    const auto c = rope(type, both).Read();
    ASSERT_TRUE(c) << c.error().message;
    EXPECT_EQ(c->rope.factor, 8.0);
    EXPECT_FALSE(TakesLongFactors(c->rope, 4096));
    EXPECT_TRUE(TakesLongFactors(c->rope, 4097));
    double magnitude = 0;
    RopeFrequencies(c->rope, c->rope.long_factors, &magnitude);
    EXPECT_NEAR(magnitude, std::sqrt(1 + std::log(8.0) / std::log(4096.0)), 1e-12);
  }
  EXPECT_FALSE(rope("longrope", R"("short_factor":[1.0],"long_factor":[1.0])").Read());
  EXPECT_FALSE(rope("longrope", fmt::format(R"("short_factor":[{}])", list)).Read());
  EXPECT_FALSE(rope("longrope", R"("factor":2.0)").Read());
}

TEST(FamilySettingsTest, Phi4MiniTurnsAPartOfEachHead) {
  const auto c = Folder("phi3", R"(,"partial_rotary_factor":0.75)").Read();
  ASSERT_TRUE(c) << c.error().message;
  EXPECT_EQ(c->rope.dims, 120);
}

TEST(FamilySettingsTest, WhatIsNotServedIsRefusedByName) {
  struct Case {
    const char *model_type, *settings, *said;
  };
  const Case cases[] = {
      {"mixtral", "", "llama, mistral, qwen2, qwen3, gemma3_text, phi3, granite"},
      {"gemma3", R"(,"vision_config":{},"text_config":{"model_type":"gemma3_text"})", "vision_config"},
      {"qwen3", R"(,"architectures":["Qwen3ForSequenceClassification"])", "Qwen3ForSequenceClassification"},
      {"gemma3_text", R"(,"final_logit_softcapping":30.0)", "final_logit_softcapping"},
      {"gemma3_text", R"(,"attn_logit_softcapping":50.0)", "attn_logit_softcapping"},
      {"gemma3_text", R"(,"hidden_activation":"silu")", "gelu_pytorch_tanh"},
      {"gemma3_text", R"(,"use_bidirectional_attention":true)", "bidirectional"},
      {"mistral", R"(,"sliding_window":-4)", "sliding_window"},
      {"qwen3", R"(,"use_sliding_window":true,"sliding_window":16,"layer_types":["linear_attention"])",
       "linear_attention"},
      {"qwen3", R"(,"use_sliding_window":true,"sliding_window":16,"layer_types":["full_attention"])", "1 entries"},
      {"granite", R"(,"logits_scaling":0)", "multiplier"},
      {"granite", R"(,"residual_multiplier":-1)", "multiplier"},
      {"phi3", R"(,"partial_rotary_factor":-1)", "rope dimension"},
  };
  for (const Case& refused : cases) {
    const auto c = Folder(refused.model_type, refused.settings).Read();
    ASSERT_FALSE(c) << refused.model_type << refused.settings;
    EXPECT_NE(c.error().message.find(refused.said), std::string::npos) << c.error().message;
  }
}

// ---- GGUF ----------------------------------------------------------------------------------------------------------

class FamilyGgufTest : public testing::TestWithParam<const char*> {};

TEST_P(FamilyGgufTest, LoadsAndChunksChangeNothing) {
  const auto bytes = BuildSeededLlama({.architecture = GetParam(), .layers = 7, .width = 64, .context = 256});
  const auto file = OpenSeededLlama(bytes);
  std::vector<int32_t> ids(70);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % 330);
  const auto whole = LogitsOf(*file, ids, 256, 128), steps = LogitsOf(*file, ids, 256, 3);
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(*whole, *steps);
  EXPECT_TRUE(std::ranges::all_of(*whole, [](float x) { return std::isfinite(x); }));
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyGgufTest,
                         testing::Values("llama", "qwen2", "qwen3", "gemma3", "phi3", "granite"),
                         [](const auto& name) { return std::string(name.param); });

TEST(FamilyGgufTest, ATensorOfAnotherFamilyIsRefusedByName) {
  // A llama with biases, and a qwen2 without: the names are one letter apart.
  auto bytes = BuildSeededLlama({.architecture = "qwen2", .layers = 1});
  auto* begin = reinterpret_cast<char*>(bytes.data());
  const std::string from = "blk.0.attn_k.bias", to = "blk.0.attn_k.bxas";
  const auto at = std::string_view(begin, bytes.size()).find(from);
  ASSERT_NE(at, std::string_view::npos);
  std::ranges::copy(to, begin + at);
  const auto model = LogitsOf(*OpenSeededLlama(bytes), {1}, 16, 1);
  ASSERT_FALSE(model);
  EXPECT_NE(model.error().message.find("blk.0.attn_k.bias is missing"), std::string::npos) << model.error().message;
}

}  // namespace
}  // namespace headrace
