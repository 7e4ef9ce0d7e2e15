// Builds a small safetensors file in memory, for tests and adapters. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace headrace {

class SafetensorsWriter {
 public:
  // REQUIRES: valid UTF-8, keys and names differ.
  void AddMetadata(std::string key, std::string value);
  // REQUIRES: a type that safetensors knows (F32, F16, BF16, integers, ...); bytes match dtype and shape.
  void AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes);

  std::vector<std::byte> Build() const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace headrace
