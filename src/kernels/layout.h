// Packed layouts that every kernel reads, and the views that ops take.
//
// R16K4: a panel is 16 output rows x all columns; a 64-byte line holds 16 rows x 4 consecutive columns, so that one
// line feeds one 512-bit (or two 256-bit) u8 x s8 dot product with one lane per output row. Rows are padded to 16 with
// zeros. What lies in a panel of each type is in formats.h.
//
// ISA files include this header: plain structs only, no std types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

// Inlined at every optimisation level, so that no ISA file ever exports a copy.
#define HR_KERNEL_INLINE [[gnu::always_inline]] inline
// Before each loop over an array that must live in registers: the compiler's own limit leaves the widest tiles rolled
// and their sums in memory (half the speed, measured). A loop that cannot be unrolled is a compile error.
#define HR_UNROLL _Pragma("clang loop unroll(full)")

namespace headrace {

constexpr int kPanelRows = 16;
constexpr int kGroup = 32;          // columns that share one activation scale
constexpr int kWideChunkRows = 96;  // rows whose second-plane sums a kernel keeps in its first-level cache
constexpr int kTileColumns = 12;    // activation rows ("columns" of the product) that one tile of the product holds

// A weight matrix [rows, columns] as the kernels read it. Borrowed; 64-byte aligned.
struct PackedMatrix {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t panel_bytes = 0;
  const std::byte* data = nullptr;

  HR_KERNEL_INLINE int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

constexpr int kGroupsMax = 1 << 12;  // groups of one row of activations

// Sums of the two halves of a group's 32 quants (2,032 at most each) in the 16-bit halves of an integer: so that one
// 16-bit dot product of pairs takes back the offset of a group's weights, or applies a number to each half.
HR_KERNEL_INLINE constexpr int32_t PackHalfSums(int32_t first, int32_t second) {
  return static_cast<int32_t>((static_cast<uint32_t>(first) & 0xFFFFu) | static_cast<uint32_t>(second) << 16);
}

// M activation rows x K columns as int8 in groups of 32: value = scale * q, q = nearest-even(x / scale),
// scale = max|x| / 127. Tiles of 12 rows (the last may be narrower) are stored [tile][group][row in tile][32], their
// scalars [tile][group][row].
//
// Wide groups. A few groups hold a row's outliers and would carry most of its rounding error. A group whose
// max|x|^2 is more than wide_ratio times the mean of that over the row's groups (summed by 16 lanes, lane = group % 16)
// gets a second int8 plane for what the first leaves over (scale / 254), so that its values have 16 bits. The choice
// depends on the row alone; the ratio is the model's, by what the activations are.
//
// The second planes of all rows lie together, by chunk of kWideChunkRows rows, by group, rows ascending. An entry is
// one (row, group). The entries of chunk c begin at entry c * kWideChunkRows * groups, those of its group g are
// [rest_first[c * (groups + 1) + g], rest_first[c * (groups + 1) + g + 1]).
struct Activations {
  int64_t rows = 0;
  int64_t columns = 0;
  const float* values = nullptr;  // [rows][value_stride], columns used
  int64_t value_stride = 0;
  float wide_ratio = 1;
  int8_t* quants = nullptr;        // [rows * columns] and kTileColumns groups more, which may be read
  float* scale = nullptr;          // [rows * groups]
  float* scaled_sum = nullptr;     // scale * sum of quants
  int32_t* sum = nullptr;          // PackHalfSums of the quants
  uint8_t* wide = nullptr;         // [rows][groups] 1 for a wide group
  uint8_t* row_is_wide = nullptr;  // [rows] 1 when the row has a wide group
  int8_t* rest_quants = nullptr;   // [rows * groups][32] and kTileColumns entries more, which may be read
  float* rest_scale = nullptr;     // [rows * groups], as the next four
  float* rest_scaled_sum = nullptr;
  int32_t* rest_sum = nullptr;
  int32_t* rest_row = nullptr;    // row of each entry in its chunk
  int32_t* rest_first = nullptr;  // [chunks * (groups + 1)]

  HR_KERNEL_INLINE int64_t groups() const { return columns / kGroup; }
  HR_KERNEL_INLINE int64_t chunks() const { return (rows + kWideChunkRows - 1) / kWideChunkRows; }
  HR_KERNEL_INLINE int64_t tiles() const { return (rows + kTileColumns - 1) / kTileColumns; }
  HR_KERNEL_INLINE int TileWidth(int64_t tile) const {
    const int64_t left = rows - tile * kTileColumns;
    return static_cast<int>(left < kTileColumns ? left : kTileColumns);
  }
  // Rows [first, first + count) as they are, for a product; first is a multiple of kWideChunkRows. Entries stay where
  // they are.
  HR_KERNEL_INLINE Activations Rows(int64_t first, int64_t count) const {
    Activations a = *this;
    a.rows = count;
    a.values += first * value_stride;
    a.quants += first * columns;
    a.scale += first * groups();
    a.scaled_sum += first * groups();
    a.sum += first * groups();
    a.wide += first * groups();
    a.row_is_wide += first;
    a.rest_first += first / kWideChunkRows * (groups() + 1);
    return a;
  }
  // Index of (row, group) in scale, scaled_sum, sum; times 32 in quants.
  HR_KERNEL_INLINE int64_t GroupIndex(int64_t row, int64_t group) const {
    const int64_t tile = row / kTileColumns;
    return tile * kTileColumns * groups() + group * TileWidth(tile) + row % kTileColumns;
  }
};

}  // namespace headrace
