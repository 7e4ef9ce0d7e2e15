// A small llama, or relative of it, with seeded random weights, for tests: grouped KV heads, odd widths and every
// compute type. Its answers mean nothing; its bits must be the same everywhere. Only tests include this.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "model/families/family.h"
#include "tensor/quantize.h"
#include "weights/gguf_writer.h"
#include "weights/model_file.h"

namespace headrace {

struct SeededLlama {
  std::string architecture = "llama";
  int layers = 4;
  int width = 256;
  int ffn_width = 512;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 48;
  int32_t vocab_size = 330;
  int64_t context = 4096;
  int64_t window = 0;  // of the families that have one; 0: the context
  // Types of the matrices, used in turn.
  std::vector<DType> types = {DType::kQ4_1};
  bool tied = true;
  uint64_t seed = 1;
  // Metadata by its whole key.
  std::map<std::string, float> more_floats = {};
  std::map<std::string, int64_t> more_integers = {};
  std::map<std::string, std::string> more_strings = {};
};

inline void AddSeededSettings(const SeededLlama& m, GgufWriter& writer) {
  const std::string prefix = m.architecture + ".";
  writer.Add("general.architecture", MetaValue::String(m.architecture));
  writer.Add("general.name", MetaValue::String("seeded"));
  const auto number = [&](const char* key, int64_t value) {
    writer.Add(prefix + key, MetaValue::U32(static_cast<uint32_t>(value)));
  };
  number("block_count", m.layers);
  number("embedding_length", m.width);
  number("feed_forward_length", m.ffn_width);
  number("attention.head_count", m.heads);
  number("attention.head_count_kv", m.kv_heads);
  number("attention.key_length", m.head_dim);
  number("rope.dimension_count", m.head_dim);
  number("context_length", m.context);
  number("vocab_size", m.vocab_size);
  writer.Add(prefix + "attention.layer_norm_rms_epsilon", MetaValue::F32(1e-5f));
  for (const auto& [key, value] : m.more_floats) writer.Add(key, MetaValue::F32(value));
  for (const auto& [key, value] : m.more_integers) writer.Add(key, MetaValue::U32(static_cast<uint32_t>(value)));
  for (const auto& [key, value] : m.more_strings) writer.Add(key, MetaValue::String(value));
  if (m.architecture == "gemma3" || m.architecture == "phi3")
    number("attention.sliding_window", m.window > 0 ? m.window : m.context);
  if (m.architecture == "granite") {
    for (const auto& [key, value] : {std::pair("embedding_scale", 3.0f), std::pair("residual_scale", 0.3f),
                                     std::pair("attention.scale", 0.2f), std::pair("logit_scale", 2.0f)})
      writer.Add(prefix + key, MetaValue::F32(value));
  }
}

// The bytes of the model as a GGUF file.
inline std::vector<std::byte> BuildSeededLlama(const SeededLlama& m) {
  const Family& family = **FamilyOfArchitecture(m.architecture);
  GgufWriter writer;
  AddSeededSettings(m, writer);
  Random random(m.seed);
  size_t turn = 0;
  const auto floats = [&](int64_t n, float scale, float centre) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = centre + static_cast<float>(random.Uniform() + random.Uniform() - 1.0) * scale;
    return out;
  };
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, float scale) {
    DType type = m.types[turn++ % m.types.size()];
    if (columns % Info(type).block_elements != 0) type = DType::kQ8_0;
    const auto row_bytes = static_cast<size_t>(*RowBytes(type, columns));
    std::vector<std::byte> bytes(static_cast<size_t>(rows) * row_bytes);
    for (int64_t r = 0; r < rows; ++r)
      QuantizeRow(type, floats(columns, scale, 0).data(), columns, bytes.data() + static_cast<size_t>(r) * row_bytes);
    writer.AddTensor(name, type, {rows, columns}, std::move(bytes));
  };
  const auto vector = [&](const std::string& name, const std::vector<float>& values) {
    const auto span = std::as_bytes(std::span(values));
    writer.AddTensor(name, DType::kF32, {std::ssize(values)}, std::vector<std::byte>(span.begin(), span.end()));
  };
  const auto norm = [&](const std::string& name) {
    auto values = floats(m.width, 0.3f, 1.0f);
    values[7] = 9.0f;  // an outlier channel, as real models have
    vector(name, values);
  };
  matrix("token_embd.weight", m.vocab_size, m.width, 1.0f);
  norm("output_norm.weight");
  if (!m.tied) matrix("output.weight", m.vocab_size, m.width, 0.3f);
  for (int l = 0; l < m.layers; ++l) {
    const LayerNames& n = family.layer;
    const auto name = [&](const TensorNames& names) { return fmt::format(fmt::runtime(names.gguf), l); };
    const auto maybe = [&](const TensorNames& names, int64_t rows, int64_t columns, float scale) {
      if (names) matrix(name(names), rows, columns, scale);
    };
    const auto maybe_vector = [&](const TensorNames& names, int64_t size, float centre) {
      if (names) vector(name(names), floats(size, 0.3f, centre));
    };
    const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
    norm(name(n.attention_norm));
    maybe(n.q, q, m.width, 0.15f);
    maybe(n.k, kv, m.width, 0.15f);
    maybe(n.v, kv, m.width, 0.1f);
    maybe(n.qkv, q + 2 * kv, m.width, 0.12f);
    maybe_vector(n.q_bias, q, 0);
    maybe_vector(n.k_bias, kv, 0);
    maybe_vector(n.v_bias, kv, 0);
    maybe_vector(n.q_norm, m.head_dim, 1);
    maybe_vector(n.k_norm, m.head_dim, 1);
    matrix(name(n.o), m.width, q, 0.1f);
    maybe_vector(n.post_attention_norm, m.width, 1);
    norm(name(n.ffn_norm));
    maybe(n.gate, m.ffn_width, m.width, 0.1f);
    maybe(n.up, m.ffn_width, m.width, 0.1f);
    maybe(n.gate_up, 2 * int64_t{m.ffn_width}, m.width, 0.1f);
    matrix(name(n.down), m.width, m.ffn_width, 0.1f);
    maybe_vector(n.post_ffn_norm, m.width, 1);
  }
  auto built = writer.Build();
  EXPECT_TRUE(built) << built.error().message;
  return std::move(*built);
}

// Opens `bytes`, which must outlive the file.
inline std::unique_ptr<ModelFile> OpenSeededLlama(const std::vector<std::byte>& bytes) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(bytes, "seeded.gguf"));
  auto file = ModelFile::FromSource(std::move(sources));
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}

}  // namespace headrace
