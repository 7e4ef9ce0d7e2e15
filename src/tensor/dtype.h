// The element types of stored tensors: plain numbers and the block formats of GGUF (ggml's block structs).
// Every type that a file can name is listed, so that a refusal can name it too; `computable` says which ones the
// kernels take. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

enum class DType : uint8_t {
  // Plain numbers.
  kF32,
  kF16,
  kBF16,
  kF64,
  kI8,
  kI16,
  kI32,
  kI64,
  // Only in safetensors.
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
  kF8E4M3,
  kF8E5M2,
  // Blocks of 32 elements with one scale (_0) or a scale and a minimum (_1).
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  // Super-blocks of 256 elements with quantised scales.
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_K,
  // Codebook, ternary, binary and micro-scaling formats.
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
};
constexpr int kDTypeCount = static_cast<int>(DType::kQ1_0) + 1;

struct DTypeInfo {
  std::string_view name;  // as the model world writes it: "Q4_K"
  int block_elements;     // a row holds whole blocks
  int block_bytes;
  bool computable;  // a file's tensor of this type can be used
};

const DTypeInfo& Info(DType type);

// Bytes of a row of `columns` elements. Errors: kCorruptData when columns is negative or no multiple of block_elements,
// or when the bytes do not fit 63 bits.
Result<uint64_t> RowBytes(DType type, int64_t columns);

// "F32, F16, ...": for messages that refuse a type.
std::string ComputableTypeNames();

}  // namespace headrace
