// Goal: checkpoints of 8-bit floats answer as the same weights multiplied out do, whatever their scales belong to;
// scales that are missing, of another shape or no numbers are refused by name, and so are other methods of
// quantisation.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/seeded_float8.h"
#include "model/test_logits.h"

namespace headrace {
namespace {

using Scales = SeededFloat8::Scales;
using testing::HasSubstr;

constexpr const char* kCompressed =
    R"(,"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
    {"group_0":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}}})";

// Widths that are no multiples of 128, and parts of fused tensors that begin inside a block.
SeededLlama Small(const char* architecture = "llama") {
  return {.architecture = architecture, .layers = 2, .width = 160, .ffn_width = 288, .context = 128, .tied = false};
}

Result<std::vector<float>> Logits(const SeededFloat8& m, int32_t chunk = 8) {
  const Float8Bytes bytes = BuildSeededFloat8(m);
  return LogitsOf(*OpenSeededFloat8(bytes), {3, 200, 17, 5, 329, 90, 41, 8, 111}, 128, chunk);
}

std::string Refusal(const SeededFloat8& m) {
  const auto logits = Logits(m);
  return logits ? "loaded" : logits.error().message;
}

// How far the checkpoint's logits are from those of its weights multiplied out.
double Distance(SeededFloat8 m) {
  const auto logits = Logits(m);
  EXPECT_TRUE(logits) << logits.error().message;
  m.multiplied_out = true;
  const auto truth = Logits(m);
  EXPECT_TRUE(truth) << truth.error().message;
  if (!logits || !truth) return INFINITY;
  double error = 0, square = 0;
  for (size_t i = 0; i < truth->size(); ++i) {
    error += std::pow(static_cast<double>((*logits)[i] - (*truth)[i]), 2);
    square += std::pow(static_cast<double>((*truth)[i]), 2);
  }
  return std::sqrt(error / square);
}

// Products of floats both: what differs is the order of products and, from it, the KV cache's last bits.
constexpr double kTolerance = 5e-5;

TEST(Float8Test, EveryKindOfScaleEqualsTheWeightsMultipliedOut) {
  for (const char* architecture : {"llama", "qwen3", "phi3"}) {
    for (const DType type : {DType::kF8E4M3, DType::kF8E5M2}) {
      SCOPED_TRACE(fmt::format("{} {}", architecture, Info(type).name));
      SeededFloat8 m{.model = Small(architecture), .type = type, .scale_type = DType::kBF16};
      EXPECT_LT(Distance(m), kTolerance) << "blocks";
      m.settings = kCompressed;
      m.suffix = "_scale";
      m.scales = Scales::kRow;
      m.scale_type = type == DType::kF8E4M3 ? DType::kF16 : DType::kF32;  // E5M2's are below the least half
      EXPECT_LT(Distance(m), kTolerance) << "rows";
      m.scales = Scales::kTensor;
      m.scale_type = DType::kF32;
      EXPECT_LT(Distance(m), kTolerance) << "tensors";
    }
  }
}

TEST(Float8Test, APlainCastHasNoScales) {
  SeededFloat8 m{.model = Small(), .scales = Scales::kNone, .settings = ""};
  EXPECT_LT(Distance(m), kTolerance);
  m.settings = kCompressed;
  EXPECT_THAT(Refusal(m), HasSubstr("model.embed_tokens.weight has type F8_E4M3, but its scales "
                                    "(model.embed_tokens.weight_scale_inv or _scale) are missing"));
}

TEST(Float8Test, ChunksChangeNothing) {
  for (const Scales scales : {Scales::kRow, Scales::kBlock}) {
    const SeededFloat8 m{.model = Small("phi3"), .scales = scales};
    EXPECT_EQ(*Logits(m, 1), *Logits(m, 8));
  }
}

TEST(Float8Test, ScalesOfActivationsAreNotUsed) {
  const std::string layer = "model.layers.1.self_attn.";
  SeededFloat8 m{.model = Small(), .scales = Scales::kTensor, .suffix = "_scale", .settings = kCompressed};
  const auto plain = Logits(m);
  m.more = {{layer + "q_proj.input_scale", {{1}, {0.3f}}},
            {layer + "k_scale", {{}, {0.4f}}},
            {layer + "v_scale", {{1}, {0.5f}}}};
  EXPECT_EQ(*Logits(m), *plain);
  m.more[layer + "q_proj.input_scale"] = {{2}, {0.3f, 0.3f}};
  EXPECT_THAT(Refusal(m), HasSubstr("tensor " + layer + "q_proj.input_scale is not part of"));
  // Without 8-bit floats there is nothing that they could belong to.
  m.more = {{layer + "k_scale", {{}, {0.4f}}}};
  m.multiplied_out = true;
  EXPECT_THAT(Refusal(m), HasSubstr("tensor " + layer + "k_scale is not part of"));
  m.more = {{layer + "q_proj.weight_scale", {{}, {0.4f}}}};
  EXPECT_THAT(Refusal(m), HasSubstr("tensor " + layer + "q_proj.weight_scale is not part of"));
}

// The name of one tensor of scales and, in its header, where its bytes lie.
std::string RefusalWith(const SeededFloat8& m, const std::string& name, size_t at, float scale) {
  Float8Bytes bytes = BuildSeededFloat8(m);
  const uint64_t offset = OpenSeededFloat8(bytes)->Find(name)->file_offset;
  std::memcpy(bytes.weights.data() + offset + at * sizeof scale, &scale, sizeof scale);
  const auto logits = LogitsOf(*OpenSeededFloat8(bytes), {1}, 128, 8);
  return logits ? "loaded" : logits.error().message;
}

TEST(Float8Test, ScalesThatAreNoPositiveNumbersAreRefusedByName) {
  const std::string name = "model.layers.1.mlp.down_proj.weight_scale_inv";
  for (const Scales scales : {Scales::kTensor, Scales::kRow, Scales::kBlock}) {
    const SeededFloat8 m{.model = Small(), .scales = scales};
    const size_t last = scales == Scales::kTensor ? 0 : scales == Scales::kRow ? 159 : 5;
    for (const float bad : {NAN, INFINITY, -0.5f, 0.0f, 1e36f}) {
      const std::string said = RefusalWith(m, name, last, bad);
      EXPECT_THAT(said, HasSubstr(fmt::format("tensor {} has a scale of {} at {}", name, bad, last)));
      EXPECT_THAT(said, HasSubstr("copy, pull or convert it again"));
    }
    EXPECT_EQ(RefusalWith(m, name, last, 0.5f), "loaded");
  }
}

TEST(Float8Test, AScaleOfZeroOverZerosIsOne) {
  const SeededFloat8 m{.model = Small(), .scales = Scales::kRow};
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  Float8Bytes bytes = BuildSeededFloat8(m);
  const auto file = OpenSeededFloat8(bytes);
  std::memset(bytes.weights.data() + file->Find(name)->file_offset, 0, 288);
  std::memset(bytes.weights.data() + file->Find(name + "_scale_inv")->file_offset, 0, sizeof(float));
  EXPECT_TRUE(LogitsOf(*OpenSeededFloat8(bytes), {1}, 128, 8));
}

TEST(Float8Test, ScalesOfAnotherShapeOrTypeAreRefusedByName) {
  const std::string name = "model.layers.0.mlp.up_proj.weight_scale";
  SeededFloat8 m{.model = Small(), .scales = Scales::kNone, .settings = ""};
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{2}, {160}, {1, 288}, {288, 2}, {3, 3}, {2, 3}, {3, 2, 1}}) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    m.more = {{name, {shape, std::vector<float>(static_cast<size_t>(count), 1.0f)}}};
    EXPECT_THAT(Refusal(m),
                HasSubstr(fmt::format("tensor {} has shape [{}]; scales of model.layers.0.mlp.up_proj.weight "
                                      "have shape [1], [288, 1] or [3, 2]",
                                      name, fmt::join(shape, ", "))));
  }
  for (const auto& shape : std::vector<std::vector<int64_t>>{{}, {1}, {288}, {288, 1}, {3, 2}}) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    m.more = {{name, {shape, std::vector<float>(static_cast<size_t>(count), 1.0f)}}};
    EXPECT_EQ(Refusal(m), "loaded") << fmt::format("[{}]", fmt::join(shape, ", "));
  }
  SeededFloat8 bytes{.model = Small(), .scales = Scales::kRow, .scale_type = DType::kF8E5M2};
  EXPECT_THAT(Refusal(bytes),
              HasSubstr("model.embed_tokens.weight_scale_inv has type F8_E5M2; scales are F32, F16 or"));
}

TEST(Float8Test, ValuesThatAreNoNumbersAreRefusedByName) {
  Float8Bytes bytes = BuildSeededFloat8({.model = Small()});
  const std::string name = "model.layers.1.self_attn.q_proj.weight";
  bytes.weights[OpenSeededFloat8(bytes)->Find(name)->file_offset + 3 * 160 + 7] = std::byte{0x7F};
  const auto logits = LogitsOf(*OpenSeededFloat8(bytes), {1}, 128, 8);
  ASSERT_FALSE(logits);
  EXPECT_THAT(logits.error().message, HasSubstr("tensor " + name +
                                                " has a value that is not finite (NaN or infinity) in"
                                                " row 3"));
}

TEST(Float8Test, OtherQuantisationsAreRefusedByName) {
  const auto with = [](const char* quantization) {
    return Refusal({.model = Small(), .settings = fmt::format(R"(,"quantization_config":{})", quantization)});
  };
  for (const char* method : {"gptq", "awq", "bitsandbytes", "mxfp4", "torchao"}) {
    EXPECT_THAT(with(fmt::format(R"({{"quant_method":"{}","bits":4}})", method).c_str()),
                HasSubstr(fmt::format("models quantised by '{}' are not supported", method)));
  }
  EXPECT_THAT(with("{}"), HasSubstr("models quantised by '' are not supported"));
  EXPECT_THAT(with(R"({"quant_method":"fp8","weight_block_size":[64,128]})"),
              HasSubstr("weight_block_size [64,128] of quantization_config is not supported, only [128, 128]"));
  EXPECT_EQ(with(R"({"quant_method":"fp8","weight_block_size":null})"), "loaded");
  EXPECT_THAT(with(R"({"quant_method":"compressed-tensors","format":"pack-quantized"})"),
              HasSubstr("compressed-tensors of format 'pack-quantized' are not supported"));
  EXPECT_THAT(with(R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
                      {"group_0":{"weights":{"strategy":"block","block_structure":[128,64]}}}})"),
              HasSubstr("block_structure [128,64]"));
  EXPECT_EQ(with(R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":
                    {"group_0":{"weights":{"strategy":"block","block_structure":[128,128]}}}})"),
            "loaded");
}

}  // namespace
}  // namespace headrace
