// Small model files for this room's tests: valid ones, and a byte-by-byte builder for those that are not.
#pragma once

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weights/gguf_writer.h"
#include "weights/model_file.h"
#include "weights/safetensors_writer.h"

namespace headrace {

using Bytes = std::vector<std::byte>;
using Loaded = Result<std::unique_ptr<ModelFile>>;

inline Bytes Pattern(size_t count, int seed = 1) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 7 + static_cast<size_t>(seed)) & 0xFF);
  return bytes;
}
inline Bytes ToBytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes(bytes.begin(), bytes.end());
}

// Borrows `bytes`.
inline Loaded LoadBytes(const Bytes& bytes, std::string name) {
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(bytes, std::move(name)));
  return ModelFile::FromSource(std::move(sources));
}
inline Loaded LoadGguf(const Bytes& bytes) { return LoadBytes(bytes, "m.gguf"); }
inline Loaded LoadSafetensors(const Bytes& bytes) { return LoadBytes(bytes, "m.safetensors"); }

inline GgufWriter TinyGguf() {
  GgufWriter writer;
  writer.Add("general.architecture", MetaValue::String("llama"));
  writer.Add("llama.block_count", MetaValue::U32(2));
  writer.Add("llama.rope.freq_base", MetaValue::F32(10000.0f));
  writer.Add("tokenizer.ggml.tokens", MetaValue::Strings({"a", "bc", "a token longer than fifteen bytes"}));
  writer.AddTensor("token_embd.weight", DType::kQ4_0, {3, 64}, Pattern(3 * 36));
  writer.AddTensor("output_norm.weight", DType::kF32, {5}, Pattern(20, 2));
  return writer;
}

inline SafetensorsWriter TinySafetensors() {
  SafetensorsWriter writer;
  writer.AddMetadata("format", "pt");
  writer.AddTensor("model.norm.weight", DType::kF32, {5}, Pattern(20));
  writer.AddTensor("lm_head.weight", DType::kBF16, {2, 3}, Pattern(12, 3));
  writer.AddTensor("scale", DType::kF16, {}, Pattern(2, 4));
  return writer;
}

// Raw bytes, little-endian.
class Raw {
 public:
  Raw& U8(uint8_t v) { return Number(v); }
  Raw& U32(uint32_t v) { return Number(v); }
  Raw& U64(uint64_t v) { return Number(v); }
  Raw& Text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  Raw& String(std::string_view text) { return U64(text.size()).Text(text); }
  Raw& Zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  Raw& Pad(size_t alignment = 32) { return Zeros((alignment - bytes_.size() % alignment) % alignment); }
  // The fixed header of a GGUF.
  Raw& Gguf(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return Text("GGUF").U32(version).U64(tensors).U64(keys);
  }
  // A tensor table entry; lengths innermost first.
  Raw& Tensor(std::string_view name, const std::vector<uint64_t>& lengths, uint32_t type, uint64_t offset) {
    String(name).U32(static_cast<uint32_t>(lengths.size()));
    for (const uint64_t length : lengths) U64(length);
    return U32(type).U64(offset);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  template <typename T>
  Raw& Number(T value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Bytes bytes_;
};

// A safetensors file from its header's text.
inline Bytes SafetensorsOf(std::string_view header, size_t data_bytes) {
  return Raw().String(header).Zeros(data_bytes).bytes();
}

// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "headrace_weights_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  void Write(std::string_view name, std::string_view text) const {
    std::ofstream(path_ / name, std::ios::binary) << text;
  }
  void Write(std::string_view name, const Bytes& bytes) const {
    Write(name, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace headrace
