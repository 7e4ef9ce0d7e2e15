// The weight formats as panels hold them, in one table of numbers: from it follow the packer, the scalar reference and
// the tiles of every instruction set. Plain structs and constants only, for ISA files too.
//
// A weight of a quantised type is scale * (quant * factor) + min, where quant = code - offset, or what a code book
// gives for the code. Scale and min belong to a group of 32 columns. Factors are small integers of 16 columns each (of
// 32 for Q4_K and Q5_K, where they are part of the scale: scale = d * factor).
//
// A panel of a quantised type is [head of each block][blocks]: a block is one group, or eight of the K types (256
// columns). A block is [scales][code planes of each group].
//
// Code planes: the lowest bits of a group's codes are a plane of 8, 4 or 2 bits, the highest of Q5, Q6_K and Q3_K one
// of 1 or 2 more. A plane of b bits has b lines of 64 bytes. Byte row * 4 + column % 4 of line L % b holds the b bits
// of column / 4 = L at bit L / b * b: so all codes of four columns come from one line by a shift and a mask.
#pragma once

#include "kernels/layout.h"
#include "tensor/dequantize.h"

namespace headrace {

// What a group of 32 columns has beside its scale.
enum class GroupKind : uint8_t {
  kPlain,
  kMin,             // a minimum
  kFactors,         // two integer factors, one for each 16 columns
  kFactorsAndMins,  // two integer factors and two integer minimums with a scale of their own
};

struct PanelFormat {
  GroupKind kind = GroupKind::kPlain;
  int low_bits = 0;      // of the first code plane
  int high_bits = 0;     // of the second, above the first
  int offset = 0;        // of the codes or of the code book's entries
  int code_max = 0;      // largest code or entry, before the offset
  int block_groups = 1;  // groups of 32 columns in a block
  int head_bytes = 0;    // of a block, before all blocks
  int scale_bytes = 0;   // of a block, at its beginning
  bool has_book = false;

  HR_KERNEL_INLINE constexpr int code_bits() const { return low_bits + high_bits; }
  HR_KERNEL_INLINE constexpr int group_bytes() const { return 64 * code_bits(); }
  HR_KERNEL_INLINE constexpr int block_bytes() const { return scale_bytes + block_groups * group_bytes(); }
  HR_KERNEL_INLINE constexpr int64_t HeadBytes(int64_t groups) const {
    return (groups / block_groups * head_bytes + 63) / 64 * 64;
  }
  HR_KERNEL_INLINE constexpr int64_t PanelBytes(int64_t groups) const {
    return HeadBytes(groups) + groups / block_groups * block_bytes();
  }
};

// The scales of a block, as pieces of its scale bytes.
struct ScaleMin16 {  // Q4_1, Q5_1
  uint16_t scale[kPanelRows], min[kPanelRows];
};
struct ScalesQ45K {  // Q4_K, Q5_K
  uint16_t scale[kPanelRows], min_scale[kPanelRows];
  uint8_t scales[8][kPanelRows], mins[8][kPanelRows];
};
struct ScalesQ2K {
  uint16_t scale[kPanelRows], min_scale[kPanelRows];
  uint8_t pairs[8][2][kPanelRows];  // factor in the low, minimum in the high nibble
};
struct FactorsQ36K {  // Q3_K, Q6_K; their scale is the head
  int8_t factors[8][2][kPanelRows];
};

constexpr int kHalfHead = 2 * kPanelRows;  // a half for each row

HR_KERNEL_INLINE constexpr PanelFormat FormatOf(DType type) {
  using enum GroupKind;
  switch (type) {
    case DType::kQ4_0:
      return {kPlain, 4, 0, 8, 15, 1, kHalfHead, 0};
    case DType::kQ4_1:
      return {kMin, 4, 0, 0, 15, 1, 0, sizeof(ScaleMin16)};
    case DType::kQ5_0:
      return {kPlain, 4, 1, 16, 31, 1, kHalfHead, 0};
    case DType::kQ5_1:
      return {kMin, 4, 1, 0, 31, 1, 0, sizeof(ScaleMin16)};
    case DType::kQ8_0:
      return {kPlain, 8, 0, 128, 255, 1, kHalfHead, 0};
    case DType::kQ2_K:
      return {kFactorsAndMins, 2, 0, 0, 3, 8, 0, sizeof(ScalesQ2K)};
    case DType::kQ3_K:
      return {kFactors, 2, 1, 4, 7, 8, kHalfHead, sizeof(FactorsQ36K)};
    case DType::kQ4_K:
      return {kMin, 4, 0, 0, 15, 8, 0, sizeof(ScalesQ45K)};
    case DType::kQ5_K:
      return {kMin, 4, 1, 0, 31, 8, 0, sizeof(ScalesQ45K)};
    case DType::kQ6_K:
      return {kFactors, 4, 2, 32, 63, 8, kHalfHead, sizeof(FactorsQ36K)};
    case DType::kIQ4_NL:
      return {kPlain, 4, 0, 128, 255, 1, kHalfHead, 0, true};
    case DType::kMXFP4:  // its scales are E8M0 bytes
      return {kPlain, 4, 0, 12, 24, 1, kPanelRows, 0, true};
    default:
      return {};
  }
}
HR_KERNEL_INLINE constexpr bool IsQuantised(DType type) { return FormatOf(type).code_bits() != 0; }

// A code book's entry: value + offset.
struct CodeBook {
  alignas(16) uint8_t entries[16];
};
HR_KERNEL_INLINE constexpr CodeBook CodeBookOf(DType type) {
  CodeBook book{};
  for (int i = 0; i < 16; ++i) {
    const int value = type == DType::kMXFP4 ? kValuesMXFP4[i] : kValuesIQ4_NL[i];
    book.entries[i] = static_cast<uint8_t>(value + FormatOf(type).offset);
  }
  return book;
}

// A panel's pieces. The panel's bytes are those of `type` for `groups` groups of 32 columns.
struct PanelPieces {
  PanelFormat format;
  const std::byte* head;
  const std::byte* blocks;

  HR_KERNEL_INLINE PanelPieces(DType type, const std::byte* panel, int64_t groups)
      : format(FormatOf(type)), head(panel), blocks(panel + format.HeadBytes(groups)) {}

  HR_KERNEL_INLINE const std::byte* Head(int64_t group) const {
    return head + group / format.block_groups * format.head_bytes;
  }
  HR_KERNEL_INLINE const std::byte* Block(int64_t group) const {
    return blocks + group / format.block_groups * format.block_bytes();
  }
  HR_KERNEL_INLINE const std::byte* Planes(int64_t group) const {
    return Block(group) + format.scale_bytes + group % format.block_groups * format.group_bytes();
  }
};

// Panels of floats are [column][16 rows] of the type as it is stored. Those of 8-bit floats have a head before them and
// are filled up to 64 bytes; the head is [block of 128 columns, the last one may be shorter][16 rows] of float scales.
constexpr int kScaleColumns = 128;
// F8_E4M3's bits are those of a half whose exponent is 8 too low: read so, without a product, their scales have this.
constexpr float kScaleUnitE4M3 = 256;

HR_KERNEL_INLINE constexpr int FloatBytes(DType type) {
  return type == DType::kF32 ? 4 : type == DType::kF16 || type == DType::kBF16 ? 2 : 1;
}
HR_KERNEL_INLINE constexpr bool HasFloatScales(DType type) { return type == DType::kF8E4M3 || type == DType::kF8E5M2; }
HR_KERNEL_INLINE constexpr int64_t ScaleBlocks(int64_t columns) {
  return (columns + kScaleColumns - 1) / kScaleColumns;
}
HR_KERNEL_INLINE constexpr int64_t FloatHeadBytes(DType type, int64_t columns) {
  return HasFloatScales(type) ? ScaleBlocks(columns) * kPanelRows * 4 : 0;
}
HR_KERNEL_INLINE constexpr int64_t FloatPanelBytes(DType type, int64_t columns) {
  return FloatHeadBytes(type, columns) + (columns * kPanelRows * FloatBytes(type) + 63) / 64 * 64;
}

// body.operator()<kType>() for the quantised type `type`.
template <typename Body>
HR_KERNEL_INLINE void WithFormat(DType type, Body&& body) {
  switch (type) {
#define HR_FORMAT(name) \
  case DType::name:     \
    return body.template operator()<DType::name>();
    HR_FORMAT(kQ4_0)
    HR_FORMAT(kQ4_1)
    HR_FORMAT(kQ5_0)
    HR_FORMAT(kQ5_1)
    HR_FORMAT(kQ8_0)
    HR_FORMAT(kQ2_K)
    HR_FORMAT(kQ3_K)
    HR_FORMAT(kQ4_K)
    HR_FORMAT(kQ5_K)
    HR_FORMAT(kQ6_K)
    HR_FORMAT(kIQ4_NL)
    HR_FORMAT(kMXFP4)
#undef HR_FORMAT
    default:
      return;
  }
}
// The same for the types of floats.
template <typename Body>
HR_KERNEL_INLINE void WithFloatType(DType type, Body&& body) {
  switch (type) {
    case DType::kF16:
      return body.template operator()<DType::kF16>();
    case DType::kBF16:
      return body.template operator()<DType::kBF16>();
    case DType::kF8E4M3:
      return body.template operator()<DType::kF8E4M3>();
    case DType::kF8E5M2:
      return body.template operator()<DType::kF8E5M2>();
    default:
      return body.template operator()<DType::kF32>();
  }
}

}  // namespace headrace
