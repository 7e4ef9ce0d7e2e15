// A seeded model as a Hugging Face checkpoint of 8-bit floats with scales, and the same with its weights multiplied
// out, for tests. Only tests include this.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/formats.h"
#include "model/seeded_llama.h"
#include "tensor/dequantize.h"
#include "weights/safetensors_writer.h"

namespace headrace {

struct SeededFloat8 {
  SeededLlama model;
  DType type = DType::kF8E4M3;
  enum class Scales : uint8_t { kNone, kTensor, kRow, kBlock } scales = Scales::kBlock;
  std::string suffix = "_scale_inv";
  DType scale_type = DType::kF32;
  bool multiplied_out = false;  // F32 instead of 8-bit floats and scales
  // Behind the settings of config.json: `,"quantization_config":{...}`.
  std::string settings = R"(,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]})";
  // More tensors, F32 of these values and shapes.
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> more = {};
};

struct Float8Bytes {
  std::string config;
  std::vector<std::byte> weights;
};

inline std::vector<std::byte> StoredAs(DType type, const std::vector<float>& values) {
  std::vector<std::byte> out(*RowBytes(type, std::ssize(values)));
  QuantizeRow(type, values.data(), std::ssize(values), out.data());
  return out;
}

// Adds one matrix; `values` [rows, columns].
inline void AddFloat8(const SeededFloat8& m, const std::string& name, int64_t rows, int64_t columns,
                      std::vector<float> values, SafetensorsWriter& writer) {
  using Scales = SeededFloat8::Scales;
  const float largest = m.type == DType::kF8E4M3 ? 448 : 57344;
  const int64_t blocks = m.scales == Scales::kBlock ? ScaleBlocks(columns) : 1;
  std::vector<int64_t> shape;
  if (m.scales == Scales::kRow) shape = {rows, 1};
  if (m.scales == Scales::kBlock) shape = {ScaleBlocks(rows), blocks};
  std::vector<float> scales(static_cast<size_t>((shape.empty() ? 1 : shape[0]) * blocks));
  const auto scale_of = [&](int64_t i) -> float& {
    const int64_t r = i / columns, k = i % columns;
    return scales[static_cast<size_t>(m.scales == Scales::kRow     ? r
                                      : m.scales == Scales::kBlock ? r / 128 * blocks + k / 128
                                                                   : 0)];
  };
  for (int64_t i = 0; i < rows * columns; ++i) {
    scale_of(i) = std::max(scale_of(i), std::abs(values[static_cast<size_t>(i)]) / largest);
  }
  if (m.scales == Scales::kNone) scales = {1};
  const auto stored = StoredAs(m.scale_type, scales);
  DequantizeRow(m.scale_type, stored.data(), std::ssize(scales), scales.data());
  // A scale that was rounded down leaves values above the largest: those are cut.
  for (int64_t i = 0; i < rows * columns; ++i) {
    float& value = values[static_cast<size_t>(i)];
    value = std::clamp(value / scale_of(i), -largest, largest);
  }
  auto bytes = StoredAs(m.type, values);
  if (m.multiplied_out) {
    DequantizeRow(m.type, bytes.data(), rows * columns, values.data());
    for (int64_t i = 0; i < rows * columns; ++i) values[static_cast<size_t>(i)] *= scale_of(i);
    writer.AddTensor(name, DType::kF32, {rows, columns}, StoredAs(DType::kF32, values));
    return;
  }
  writer.AddTensor(name, m.type, {rows, columns}, std::move(bytes));
  if (m.scales != Scales::kNone) writer.AddTensor(name + m.suffix, m.scale_type, shape, stored);
}

// GGUF's tensor names and those of a Hugging Face folder.
inline std::map<std::string, std::string> HuggingFaceNames(const SeededLlama& m) {
  std::map<std::string, std::string> names;
  for (const TensorNames& n : {kEmbeddingNames, kOutputNormNames, kHeadNames}) names[n.gguf] = n.hugging_face;
  const LayerNames& l = (*FamilyOfArchitecture(m.architecture))->layer;
  for (const TensorNames& n :
       {l.attention_norm, l.q, l.k, l.v, l.qkv, l.q_bias, l.k_bias, l.v_bias, l.q_norm, l.k_norm, l.o,
        l.post_attention_norm, l.ffn_norm, l.gate, l.up, l.gate_up, l.down, l.post_ffn_norm}) {
    if (!n) continue;
    for (int i = 0; i < m.layers; ++i)
      names[fmt::format(fmt::runtime(n.gguf), i)] = fmt::format(fmt::runtime(n.hugging_face), i);
  }
  return names;
}

inline Float8Bytes BuildSeededFloat8(const SeededFloat8& m) {
  SeededLlama source = m.model;
  source.types = {DType::kF32};
  const auto gguf = BuildSeededLlama(source);
  const auto file = OpenSeededLlama(gguf);
  const auto names = HuggingFaceNames(source);
  SafetensorsWriter writer;
  for (const TensorInfo& tensor : file->tensors()) {
    std::vector<float> values(tensor.bytes / sizeof(float));
    EXPECT_TRUE(file->Read(tensor, 0, std::as_writable_bytes(std::span(values))));
    const std::string& name = names.at(tensor.name);
    if (tensor.shape.size() == 1) {
      writer.AddTensor(name, DType::kF32, tensor.shape, StoredAs(DType::kF32, values));
    } else {
      AddFloat8(m, name, tensor.rows(), tensor.columns(), std::move(values), writer);
    }
  }
  for (const auto& [name, tensor] : m.more)
    writer.AddTensor(name, DType::kF32, tensor.first, StoredAs(DType::kF32, tensor.second));
  const std::string config = fmt::format(
      R"({{"model_type":"{}","hidden_size":{},"intermediate_size":{},"num_hidden_layers":{},"num_attention_heads":{},
"num_key_value_heads":{},"head_dim":{},"vocab_size":{},"max_position_embeddings":{},"rms_norm_eps":1e-5,
"tie_word_embeddings":{}{}}})",
      (*FamilyOfArchitecture(source.architecture))->model_type, source.width, source.ffn_width, source.layers,
      source.heads, source.kv_heads, source.head_dim, source.vocab_size, source.context, source.tied,
      m.multiplied_out ? "" : m.settings);
  return {config, writer.Build()};
}

// Opens `bytes`, which must outlive the file.
inline std::unique_ptr<ModelFile> OpenSeededFloat8(const Float8Bytes& bytes) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(bytes.weights, "model.safetensors"));
  sources.push_back(SourceFromMemory(std::as_bytes(std::span(bytes.config)), "config.json"));
  auto file = ModelFile::FromSource(std::move(sources));
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*file);
}

}  // namespace headrace
