// A model on disk, read in place: GGUF v2 and v3 (one file or numbered parts), one safetensors file, or a Hugging Face
// folder. Opening parses and checks every header, so that afterwards each tensor is known to lie inside its file.
// Immutable after Open, so thread-safe. Messages carry file names without their folder.
// Formats: the GGUF specification of ggml (docs/gguf.md), the safetensors README.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "weights/meta_value.h"

namespace headrace {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first: {rows, columns}; empty: one scalar
  uint64_t bytes = 0;
  uint32_t file_index = 0;
  uint64_t file_offset = 0;  // from the start of that file

  // A row is what lies innermost and contiguous: shape.back() elements.
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const;
};

class ModelFile {
 public:
  enum class Format : uint8_t { kGguf, kSafetensors };
  // The texts beside the weights in a Hugging Face folder: config.json, tokenizer.json, tokenizer_config.json,
  // generation_config.json, chat_template.jinja.
  enum class TextKind : uint8_t { kConfig, kTokenizer, kTokenizerConfig, kGenerationConfig, kChatTemplate };
  static constexpr size_t kTextKinds = 5;

  // path: a GGUF file (of numbered parts -00001-of-0000N any one), a .safetensors file, or a folder with config.json
  // and model.safetensors or model.safetensors.index.json. Errors: kNotFound, kIo; kCorruptData naming the place in the
  // file; kTooLarge naming the limit; kUnsupported for other formats, pickled ones among them, with what to do.
  static Result<std::unique_ptr<ModelFile>> Open(const std::string& path);
  // The same from open sources: one GGUF file or all parts in any order, or safetensors shards; sources named as the
  // texts of a folder and its index are taken as those.
  static Result<std::unique_ptr<ModelFile>> FromSource(std::vector<std::unique_ptr<ByteSource>> sources);

  Format format() const { return format_; }
  // The first file's name without its folder.
  std::string name() const;
  // Of all weight files, headers included.
  uint64_t total_bytes() const;

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* Find(std::string_view name) const;
  // Fills `out` from `offset` within the tensor. Errors: kInvalidArgument outside the tensor, kIo, kCorruptData when
  // the file has become shorter: with the tensor's name and what to do. `tensor` is one of tensors().
  Status Read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;
  // Fails with kUnsupported on the first tensor whose type the kernels do not take, naming tensor, type and what is
  // supported. A file may hold tensors that its model never uses: those that are used can be checked one by one.
  Status CheckComputable() const;
  static Status CheckComputable(const TensorInfo& tensor);

  // GGUF metadata, or the __metadata__ strings of safetensors files; in file order.
  const std::vector<MetaEntry>& metadata() const { return metadata_; }
  const MetaValue* Meta(std::string_view key) const;
  // Nothing when absent or of another kind.
  std::optional<int64_t> MetaInt(std::string_view key) const;
  std::optional<double> MetaFloat(std::string_view key) const;
  std::optional<std::string> MetaString(std::string_view key) const;
  std::optional<bool> MetaBool(std::string_view key) const;
  const std::vector<std::string>* MetaStrings(std::string_view key) const;
  const std::vector<float>* MetaFloats(std::string_view key) const;
  const std::vector<int64_t>* MetaInts(std::string_view key) const;

  // Raw text of a folder's file, "" when absent. The JSON among them may be invalid, but never nests deeper than
  // kJsonDepthMax, so that a parser's stack is safe.
  const std::string& Text(TextKind kind) const { return texts_[static_cast<size_t>(kind)]; }

  // Names the weights by SHA-256, in hex. ContentHash covers headers, sizes, the texts and a sample of every tensor
  // (kIdentitySampleBytesMax in all): fast, and different for models that were trained or quantised differently, but
  // no proof against tampering. FullHash covers every byte.
  Result<std::string> ContentHash() const;
  Result<std::string> FullHash() const;
  // The files' states as they are now, in order. Empty when one is no file on disk.
  std::vector<FileState> States() const;

 private:
  friend class ModelFileBuilder;
  ModelFile() = default;

  Format format_ = Format::kGguf;
  std::vector<std::unique_ptr<ByteSource>> sources_;  // weight files, by file_index
  std::vector<uint64_t> header_bytes_;                // of each: where its tensor data begins
  std::vector<TensorInfo> tensors_;
  std::vector<uint32_t> tensors_by_name_;  // indices into tensors_, sorted by name
  std::vector<MetaEntry> metadata_;
  std::array<std::string, kTextKinds> texts_;
};

}  // namespace headrace
