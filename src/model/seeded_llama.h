// A small llama with seeded random weights, for tests: grouped KV heads, odd widths and every compute type. Its answers
// mean nothing; its bits must be the same everywhere. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "tensor/quantize.h"
#include "weights/gguf_writer.h"
#include "weights/model_file.h"

namespace headrace {

struct SeededLlama {
  int layers = 4;
  int width = 256;
  int ffn_width = 512;
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 48;
  int32_t vocab_size = 330;
  int64_t context = 4096;
  // Types of the matrices, used in turn.
  std::vector<DType> types = {DType::kQ4_1};
  bool tied = true;
  uint64_t seed = 1;
};

// The bytes of the model as a GGUF file.
inline std::vector<std::byte> BuildSeededLlama(const SeededLlama& m) {
  GgufWriter writer;
  writer.Add("general.architecture", MetaValue::String("llama"));
  writer.Add("general.name", MetaValue::String("seeded"));
  const auto number = [&](const char* key, int64_t value) {
    writer.Add(std::string("llama.") + key, MetaValue::U32(static_cast<uint32_t>(value)));
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
  writer.Add("llama.attention.layer_norm_rms_epsilon", MetaValue::F32(1e-5f));
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
  const auto norm = [&](const std::string& name) {
    auto values = floats(m.width, 0.3f, 1.0f);
    values[7] = 9.0f;  // an outlier channel, as real models have
    const auto span = std::as_bytes(std::span(values));
    writer.AddTensor(name, DType::kF32, {m.width}, std::vector<std::byte>(span.begin(), span.end()));
  };
  matrix("token_embd.weight", m.vocab_size, m.width, 1.0f);
  norm("output_norm.weight");
  if (!m.tied) matrix("output.weight", m.vocab_size, m.width, 0.3f);
  for (int l = 0; l < m.layers; ++l) {
    const std::string p = "blk." + std::to_string(l) + ".";
    norm(p + "attn_norm.weight");
    matrix(p + "attn_q.weight", m.heads * m.head_dim, m.width, 0.15f);
    matrix(p + "attn_k.weight", m.kv_heads * m.head_dim, m.width, 0.15f);
    matrix(p + "attn_v.weight", m.kv_heads * m.head_dim, m.width, 0.1f);
    matrix(p + "attn_output.weight", m.width, m.heads * m.head_dim, 0.1f);
    norm(p + "ffn_norm.weight");
    matrix(p + "ffn_gate.weight", m.ffn_width, m.width, 0.1f);
    matrix(p + "ffn_up.weight", m.ffn_width, m.width, 0.1f);
    matrix(p + "ffn_down.weight", m.width, m.ffn_width, 0.1f);
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
