// Goal: a model is loaded exactly or refused by name: shapes, missing and surplus tensors, the tied head (O-36), rope
// settings of every spelling (O-37, against the published formulas).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "model/llama.h"
#include "model/seeded_llama.h"

namespace headrace {
namespace {

Result<std::unique_ptr<LlamaModel>> LoadFrom(const std::vector<std::byte>& bytes, ModelConfig* config = nullptr) {
  const auto file = OpenSeededLlama(bytes);
  HR_ASSIGN_OR_RETURN(const ModelConfig read, ReadModelConfig(*file));
  if (config != nullptr) *config = read;
  ComputePool pool(2);
  return LlamaModel::Load(*file, read, ReferenceKernels(), pool, {.context = 128, .rows_max = 8, .logit_rows_max = 8});
}

TEST(LlamaLoadTest, EveryComputeTypeLoadsTiedAndUntied) {
  for (const bool tied : {true, false}) {
    ModelConfig config;
    const auto model = LoadFrom(
        BuildSeededLlama({.layers = 2,
                          .types = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                                    DType::kQ5_1, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K},
                          .tied = tied}),
        &config);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(config.head_dim, 48);
    EXPECT_EQ(config.group_heads(), 2);
    EXPECT_EQ(config.vocab_size, 330);
  }
}

TEST(LlamaLoadTest, WhatDoesNotFitIsRefusedByName) {
  // A head dimension that the tensors do not have.
  auto bytes = BuildSeededLlama({.layers = 1});
  const auto replace = [](std::vector<std::byte> in, const std::string& from, const std::string& to) {
    EXPECT_EQ(from.size(), to.size());
    auto* begin = reinterpret_cast<char*>(in.data());
    const auto at = std::string_view(begin, in.size()).find(from);
    EXPECT_NE(at, std::string_view::npos);
    std::copy(to.begin(), to.end(), begin + at);
    return in;
  };
  const auto missing = LoadFrom(replace(bytes, "blk.0.attn_q.weight", "blk.0.attn_x.weight"));
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("blk.0.attn_q.weight is missing"), std::string::npos)
      << missing.error().message;
  const auto architecture = LoadFrom(replace(bytes, "llama", "lxama"));
  ASSERT_FALSE(architecture);
  EXPECT_EQ(architecture.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(architecture.error().message.find("lxama"), std::string::npos);
  SeededLlama two{.layers = 2};
  const auto surplus = LoadFrom(replace(BuildSeededLlama(two), "blk.1.ffn_norm.weight", "blk.1.ffn_norm.biases"));
  ASSERT_FALSE(surplus);
}

TEST(ModelConfigTest, AbsurdShapesAreRefused) {
  for (const auto& change : std::vector<std::function<void(SeededLlama&)>>{[](SeededLlama& m) { m.head_dim = 40; },
                                                                           [](SeededLlama& m) {
                                                                             m.heads = 6;
                                                                             m.kv_heads = 4;
                                                                           },
                                                                           [](SeededLlama& m) { m.head_dim = 512; }}) {
    SeededLlama m{.layers = 1};
    change(m);
    const auto bytes = BuildSeededLlama(m);
    const auto model = LoadFrom(bytes);
    EXPECT_FALSE(model);
  }
}

// ---- rope ----------------------------------------------------------------------------------------------------------

std::unique_ptr<ModelFile> HfFolder(const std::string& rope, std::string* storage, std::vector<std::byte>* weights) {
  *storage =
      R"({"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":1,"num_attention_heads":1,
    "num_key_value_heads":1,"vocab_size":32,"max_position_embeddings":8192,"hidden_act":"silu")" +
      rope + "}";
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  weights->assign(8 + header.size() + 4, std::byte{0});
  const uint64_t size = header.size();
  std::memcpy(weights->data(), &size, 8);
  std::memcpy(weights->data() + 8, header.data(), header.size());
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(*weights, "model.safetensors"));
  sources.push_back(SourceFromMemory(std::as_bytes(std::span(*storage)), "config.json"));
  auto file = ModelFile::FromSource(std::move(sources));
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}

std::vector<double> FrequenciesOf(const std::string& rope, double* magnitude) {
  std::string storage;
  std::vector<std::byte> weights;
  const auto file = HfFolder(rope, &storage, &weights);
  const auto config = ReadModelConfig(*file);
  EXPECT_TRUE(config) << config.error().message;
  return RopeFrequencies(config->rope, {}, magnitude);
}

TEST(RopeTest, O37EverySpellingGivesThePublishedFrequencies) {
  constexpr double kPi = 3.14159265358979323846;
  double magnitude = 0;
  const auto plain = [](double base, int i) { return std::pow(base, -2.0 * i / 64); };
  auto f = FrequenciesOf(R"(,"rope_theta":500000)", &magnitude);
  for (int i = 0; i < 32; ++i) EXPECT_NEAR(f[static_cast<size_t>(i)], plain(500000, i), 1e-6 * plain(500000, i));
  for (const char* linear : {R"(,"rope_scaling":{"type":"linear","factor":4.0})",
                             R"(,"rope_parameters":{"rope_type":"linear","factor":4.0,"rope_theta":10000})"}) {
    f = FrequenciesOf(linear, &magnitude);
    for (int i = 0; i < 32; ++i) EXPECT_NEAR(f[static_cast<size_t>(i)], plain(10000, i) / 4, 1e-6 * plain(10000, i));
  }
  f = FrequenciesOf(
      R"(,"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":2048})",
      &magnitude);
  for (int i = 0; i < 32; ++i) {
    const double w = plain(500000, i), wavelength = 2 * kPi / w;
    double expected = w;
    if (wavelength > 2048)
      expected = w / 8;
    else if (wavelength >= 512) {
      const double smooth = (2048 / wavelength - 1) / 3;
      expected = (1 - smooth) * w / 8 + smooth * w;
    }
    EXPECT_NEAR(f[static_cast<size_t>(i)], expected, 1e-6 * expected) << i;
  }
  f = FrequenciesOf(R"(,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":2048})",
                    &magnitude);
  EXPECT_NEAR(magnitude, 0.1 * std::log(4.0) + 1.0, 1e-12);
  const auto correction = [&](double rotations) {
    return 64 * std::log(2048 / (rotations * 2 * kPi)) / (2 * std::log(10000.0));
  };
  const double low = std::floor(correction(32)), high = std::ceil(correction(1));
  for (int i = 0; i < 32; ++i) {
    const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(f[static_cast<size_t>(i)], plain(10000, i) / 4 * ramp + plain(10000, i) * (1 - ramp),
                1e-6 * plain(10000, i))
        << i;
  }
}

// transformers' _compute_yarn_parameters: an attention factor stands for the formula, two mscales make a ratio of two.
TEST(RopeTest, YarnOfHuggingFaceReadsItsTemperatureAndItsRamp) {
  const std::string yarn =
      R"(,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":2048)";
  double magnitude = 0;
  const auto whole = FrequenciesOf(yarn + "}", &magnitude);
  FrequenciesOf(yarn + R"(,"attention_factor":0.7})", &magnitude);
  EXPECT_DOUBLE_EQ(magnitude, 0.7);
  FrequenciesOf(yarn + R"(,"mscale":0.707,"mscale_all_dim":1.2})", &magnitude);
  EXPECT_NEAR(magnitude, (0.0707 * std::log(4.0) + 1) / (0.12 * std::log(4.0) + 1), 1e-12);
  const auto between = FrequenciesOf(yarn + R"(,"truncate":false})", &magnitude);
  EXPECT_NE(between, whole) << "the ramp begins between two dimensions";
  EXPECT_NEAR(between.front(), whole.front(), 1e-12);
}

// llama.cpp: the factors of the file multiply the paper's, and what it cannot be without is refused.
TEST(RopeTest, YarnOfGgufMultipliesItsTemperature) {
  const auto config = [](std::map<std::string, float> floats) {
    SeededLlama model{.layers = 1, .more_strings = {{"llama.rope.scaling.type", "yarn"}}};
    floats["llama.rope.scaling.factor"] = 4;
    for (const auto& [key, value] : floats) model.more_floats[key] = value;
    model.more_integers = {{"llama.rope.scaling.original_context_length", 2048}};
    const auto bytes = BuildSeededLlama(model);
    return ReadModelConfig(*OpenSeededLlama(bytes));
  };
  const auto magnitude = [&](const std::map<std::string, float>& floats) {
    const auto read = config(floats);
    EXPECT_TRUE(read) << read.error().message;
    double out = 0;
    RopeFrequencies(read->rope, {}, &out);
    return out;
  };
  const double paper = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(magnitude({}), paper, 1e-12);
  EXPECT_NEAR(magnitude({{"llama.rope.scaling.attn_factor", 1}, {"llama.rope.scaling.yarn_attn_factor", 1}}), paper,
              1e-12);
  EXPECT_NEAR(magnitude({{"llama.rope.scaling.attn_factor", 0.5f}}), paper / 2, 1e-12);
  EXPECT_NEAR(magnitude({{"llama.rope.scaling.yarn_attn_factor", 0.5f}}), paper / 2, 1e-12);
  EXPECT_EQ(config({{"llama.rope.scaling.yarn_beta_fast", 64}})->rope.beta_fast, 64);
  EXPECT_EQ(config({{"llama.rope.scaling.yarn_ext_factor", 1}})->rope.beta_slow, 1);
  for (const char* key : {"llama.rope.scaling.yarn_ext_factor", "llama.rope.scaling.yarn_log_multiplier"}) {
    const auto refused = config({{key, 0.5f}});
    ASSERT_FALSE(refused) << key;
    EXPECT_NE(refused.error().message.find(std::string(key).substr(19)), std::string::npos) << refused.error().message;
  }
}

TEST(RopeTest, UnknownScalingsAreRefusedNotIgnored) {
  struct Case {
    const char *settings, *said;
  };
  constexpr const char* kSupported = "supported are none, linear, llama3, yarn and longrope";
  const Case cases[] = {
      {R"(,"rope_scaling":{"type":"dynamic","factor":2.0})", "rope scaling 'dynamic' is not supported"},
      {R"(,"rope_scaling":{"type":"dynamic","factor":2.0})", kSupported},
      {R"(,"rope_parameters":{"rope_type":"ntk","rope_theta":10000})", kSupported},
      {R"(,"rope_scaling":{"rope_type":4,"factor":2.0})", "rope_type of rope_scaling is no name"},
      {R"(,"rope_scaling":{"factor":2.0})", "has a factor, but no rope_type"},
      {R"(,"rope_scaling":"linear")", "rope_scaling is no object"},
      {R"(,"rope_scaling":[2.0])", "rope_scaling is no object"},
  };
  for (const Case& c : cases) {
    std::string storage;
    std::vector<std::byte> weights;
    const auto config = ReadModelConfig(*HfFolder(c.settings, &storage, &weights));
    ASSERT_FALSE(config) << c.settings;
    EXPECT_NE(config.error().message.find(c.said), std::string::npos) << config.error().message;
  }
}

TEST(RopeTest, FrequenciesThatAreNoNumbersAreRefused) {
  const auto refusal = [](const std::string& settings, const std::vector<float>& factors = {}) {
    std::string storage;
    std::vector<std::byte> weights;
    const auto config = ReadModelConfig(*HfFolder(settings, &storage, &weights));
    return config ? CheckFrequencies(config->rope, factors) : Status(std::unexpected(config.error()));
  };
  const std::string llama3 = R"(,"rope_scaling":{"rope_type":"llama3","original_max_position_embeddings":2048,)";
  EXPECT_TRUE(refusal(llama3 + R"("factor":8.0})"));
  for (const std::string& settings :
       {llama3 + R"("factor":1e-300})", std::string(R"(,"rope_scaling":{"type":"linear","factor":1e-9})"),
        std::string(R"(,"rope_scaling":{"type":"yarn","factor":4.0,"attention_factor":1e999})"),
        std::string(R"(,"rope_scaling":{"type":"yarn","factor":1e-30})"), std::string(R"(,"rope_theta":1e999)")}) {
    EXPECT_FALSE(refusal(settings)) << settings;
  }
  EXPECT_TRUE(refusal("", std::vector<float>(32, 2.0f)));
  EXPECT_FALSE(refusal("", std::vector<float>(32, 1e-9f)));
}

TEST(RopeTest, AFactorWithoutATypeIsLinearInGguf) {
  const auto frequency = [](const char* key, float factor) {
    SeededLlama model{.layers = 1};
    if (key != nullptr) model.more_floats = {{key, factor}};
    const auto bytes = BuildSeededLlama(model);
    const auto config = ReadModelConfig(*OpenSeededLlama(bytes));
    EXPECT_TRUE(config) << config.error().message;
    double magnitude = 0;
    return RopeFrequencies(config->rope, {}, &magnitude).at(1);
  };
  const double plain = frequency(nullptr, 0);
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scale_linear"})
    EXPECT_DOUBLE_EQ(frequency(key, 4), plain / 4) << key;
}

TEST(LlamaLoadTest, O36AHeadThatIsDeclaredButMissingIsAnError) {
  std::string storage;
  std::vector<std::byte> weights;
  const auto file = HfFolder(R"(,"tie_word_embeddings":false)", &storage, &weights);
  const auto config = ReadModelConfig(*file);
  ASSERT_TRUE(config);
  EXPECT_FALSE(config->tied_head_declared);
  ComputePool pool(1);
  EXPECT_FALSE(
      LlamaModel::Load(*file, *config, ReferenceKernels(), pool, {.context = 64, .rows_max = 1, .logit_rows_max = 1}));
}

}  // namespace
}  // namespace headrace
