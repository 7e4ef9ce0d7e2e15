// Builds a GGUF v3 file: for tests in memory, for converters on disk with one tensor in memory at a time. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "weights/meta_value.h"

namespace headrace {

class GgufWriter {
 public:
  // Makes the bytes of a tensor when it is its turn.
  using Produce = std::function<Result<std::vector<std::byte>>()>;

  // REQUIRES: alignment is a power of two, at most kAlignmentMax. Other than 32 it is stored as general.alignment.
  explicit GgufWriter(uint64_t alignment = 32);

  // In the order in which they shall lie. REQUIRES: keys and names differ.
  void Add(std::string key, MetaValue value);
  // shape: outermost first, 1 to 4 lengths of at least 1, whole blocks per row.
  void AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes);
  void AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, Produce produce);

  // The whole file. Errors: those of Produce; kInternal when a tensor's bytes do not match its shape.
  Result<std::vector<std::byte>> Build() const;
  // Writes beside `path`, syncs and renames: the file is either old or new. Errors: also kIo.
  Status Write(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    uint64_t bytes;
    Produce produce;
  };
  using Sink = std::function<Status(std::span<const std::byte>)>;

  std::vector<std::byte> Header() const;
  Status Emit(const Sink& sink) const;

  const uint64_t alignment_;
  std::vector<MetaEntry> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace headrace
