// The scalar truth of each computable type: what the stored bits mean as floats. Kernels are tested against it; nothing
// in the step loop calls it except embedding rows. Block layouts: ggml's block structs. Pure function, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

// row: RowBytes(type, columns) bytes of any alignment; out: columns floats.
// REQUIRES: Info(type).computable, columns a multiple of block_elements.
void DequantizeRow(DType type, const std::byte* row, int64_t columns, float* out);

// Scale and minimum number `index` (0..7) of a Q4_K or Q5_K super-block, 6 bits each, packed in 12 bytes: four whole
// bytes of scales, four of minimums, whose top bit pairs complete the last four of each.
struct ScaleMin {
  uint8_t scale;
  uint8_t min;
};
constexpr ScaleMin UnpackScaleMin(const uint8_t* packed, int index) {
  if (index < 4) return {static_cast<uint8_t>(packed[index] & 63), static_cast<uint8_t>(packed[index + 4] & 63)};
  return {static_cast<uint8_t>((packed[index + 4] & 0xF) | ((packed[index - 4] >> 6) << 4)),
          static_cast<uint8_t>((packed[index + 4] >> 4) | ((packed[index] >> 6) << 4))};
}

}  // namespace headrace
