// The scalar truth of each type that has kernels: what the stored bits mean as floats. Kernels are tested against it;
// nothing in the step loop calls it. Block layouts: ggml's block structs. Pure function, thread-safe.
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

// Scale number `index` (0..15) of a Q3_K super-block, 6 bits less 32, packed in 12 bytes: eight bytes of nibbles, four
// of their top bit pairs.
constexpr int UnpackScaleQ3_K(const uint8_t* packed, int index) {
  const int low = index < 8 ? packed[index] & 0xF : packed[index - 8] >> 4;
  return (low | (((packed[8 + index % 4] >> (index / 4 * 2)) & 3) << 4)) - 32;
}

// What the 16 codes of IQ4_NL and of MXFP4 stand for; MXFP4's values (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives)
// are doubled here and its scale is halved.
constexpr int8_t kValuesIQ4_NL[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr int8_t kValuesMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace headrace
