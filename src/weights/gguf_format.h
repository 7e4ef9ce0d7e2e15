// The numbers of the GGUF format that reader and writer share. Source: the GGUF specification (docs/gguf.md of ggml).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"
#include "weights/meta_value.h"

namespace headrace {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignmentDefault = 32;
constexpr std::string_view kGgufAlignmentKey = "general.alignment";

// The type number of a tensor. Numbers that were withdrawn (4, 5, 31 to 33, 36 to 38) are no type.
std::optional<DType> DTypeFromGguf(uint32_t number);
// Nothing for types that only safetensors knows.
std::optional<uint32_t> GgufFromDType(DType type);

// Bytes of a metadata scalar; 0 for strings, arrays and unknown types.
constexpr uint64_t MetaScalarBytes(MetaType type) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kI8:
    case MetaType::kBool:
      return 1;
    case MetaType::kU16:
    case MetaType::kI16:
      return 2;
    case MetaType::kU32:
    case MetaType::kI32:
    case MetaType::kF32:
      return 4;
    case MetaType::kU64:
    case MetaType::kI64:
    case MetaType::kF64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace headrace
