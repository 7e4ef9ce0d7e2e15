// Packing of file rows into panels. Runs at load time on all threads; the layouts are in layout.h.
#include <cstring>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace headrace {
namespace {

int64_t FileRowBytes(DType dtype, int64_t columns) {
  const DTypeInfo& info = Info(dtype);
  return columns / info.block_elements * info.block_bytes;
}

int64_t PanelBytes(DType dtype, int64_t columns) {
  switch (dtype) {
    case DType::kQ4_1:
      return columns / kGroup * static_cast<int64_t>(sizeof(PanelBlockQ4_1));
    case DType::kQ8_0:
      return PanelQ8_0ScaleBytes(columns / kGroup) + columns * kPanelRows;
    case DType::kF32:
      return columns * kPanelRows * 4;
    default:
      return FileRowBytes(dtype, columns) * kPanelRows;
  }
}

uint16_t LoadU16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// GGUF Q4_1: f16 scale, f16 min, 16 bytes; byte i has column i in its low and column i + 16 in its high nibble.
void PackRowQ4_1(int64_t columns, const std::byte* row, int lane, PanelBlockQ4_1* blocks) {
  for (int64_t b = 0; b < columns / kGroup; ++b, row += 20) {
    PanelBlockQ4_1& block = blocks[b];
    block.scale[lane] = LoadU16(row);
    block.min[lane] = LoadU16(row + 2);
    for (int i = 0; i < 16; ++i) block.quants[i / 4][lane * 4 + i % 4] = static_cast<uint8_t>(row[4 + i]);
  }
}

// The same panel while it is written.
struct Q8_0Writer {
  uint16_t (*scale)[kPanelRows];
  uint8_t (*quants)[8][64];
  Q8_0Writer(std::byte* panel, int64_t groups)
      : scale(reinterpret_cast<uint16_t (*)[kPanelRows]>(panel)),
        quants(reinterpret_cast<uint8_t (*)[8][64]>(panel + PanelQ8_0ScaleBytes(groups))) {}
};

// GGUF Q8_0: f16 scale, 32 signed bytes.
void PackRowQ8_0(int64_t columns, const std::byte* row, int lane, std::byte* panel) {
  const Q8_0Writer out(panel, columns / kGroup);
  for (int64_t b = 0; b < columns / kGroup; ++b, row += 34) {
    out.scale[b][lane] = LoadU16(row);
    for (int i = 0; i < kGroup; ++i) {
      out.quants[b][i / 4][lane * 4 + i % 4] = static_cast<uint8_t>(row[2 + i]) ^ 0x80;
    }
  }
}

void ZeroRow(DType dtype, int64_t columns, int lane, std::byte* panel) {
  if (dtype == DType::kQ4_1) {
    auto* blocks = reinterpret_cast<PanelBlockQ4_1*>(panel);
    for (int64_t b = 0; b < columns / kGroup; ++b) {
      blocks[b].scale[lane] = blocks[b].min[lane] = 0;
      for (auto& line : blocks[b].quants) std::memset(line + lane * 4, 0, 4);
    }
  } else {
    const Q8_0Writer out(panel, columns / kGroup);
    for (int64_t b = 0; b < columns / kGroup; ++b) {
      out.scale[b][lane] = 0;
      for (auto& line : out.quants[b]) std::memset(line + lane * 4, 0x80, 4);
    }
  }
}

void PackPanelF32(int64_t columns, const std::byte* rows, int64_t row_count, std::byte* panel) {
  auto* out = reinterpret_cast<float*>(panel);
  std::memset(panel, 0, static_cast<size_t>(columns) * kPanelRows * 4);
  for (int64_t r = 0; r < row_count; ++r) {
    for (int64_t k = 0; k < columns; ++k) std::memcpy(&out[k * kPanelRows + r], rows + (r * columns + k) * 4, 4);
  }
}

}  // namespace

int64_t PackedBytes(DType dtype, int64_t rows, int64_t columns) {
  return (rows + kPanelRows - 1) / kPanelRows * PanelBytes(dtype, columns);
}

PackedMatrix DescribePacked(DType dtype, int64_t rows, int64_t columns, const std::byte* data) {
  PackedMatrix matrix;
  matrix.dtype = dtype;
  matrix.rows = rows;
  matrix.columns = columns;
  matrix.panel_bytes = PanelBytes(dtype, columns);
  const bool paneled = dtype == DType::kQ4_1 || dtype == DType::kQ8_0 || dtype == DType::kF32;
  matrix.row_bytes = paneled ? 0 : FileRowBytes(dtype, columns);
  matrix.data = data;
  return matrix;
}

void PackPanel(DType dtype, int64_t columns, const std::byte* rows, int64_t row_count, int64_t panel, std::byte* data) {
  CHECK_LE(row_count, kPanelRows);
  std::byte* out = data + panel * PanelBytes(dtype, columns);
  const int64_t row_bytes = FileRowBytes(dtype, columns);
  if (dtype == DType::kF32) return PackPanelF32(columns, rows, row_count, out);
  if (dtype != DType::kQ4_1 && dtype != DType::kQ8_0) {
    std::memcpy(out, rows, static_cast<size_t>(row_count * row_bytes));
    std::memset(out + row_count * row_bytes, 0, static_cast<size_t>((kPanelRows - row_count) * row_bytes));
    return;
  }
  for (int lane = 0; lane < kPanelRows; ++lane) {
    const std::byte* row = rows + lane * row_bytes;
    if (lane >= row_count) {
      ZeroRow(dtype, columns, lane, out);
    } else if (dtype == DType::kQ4_1) {
      PackRowQ4_1(columns, row, lane, reinterpret_cast<PanelBlockQ4_1*>(out));
    } else {
      PackRowQ8_0(columns, row, lane, out);
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  CHECK_LT(row, matrix.rows);
  const std::byte* panel = matrix.data + row / kPanelRows * matrix.panel_bytes;
  const int lane = static_cast<int>(row % kPanelRows);
  if (matrix.row_bytes != 0) return DequantizeRow(matrix.dtype, panel + lane * matrix.row_bytes, matrix.columns, out);
  if (matrix.dtype == DType::kF32) {
    const auto* values = reinterpret_cast<const float*>(panel);
    for (int64_t k = 0; k < matrix.columns; ++k) out[k] = values[k * kPanelRows + lane];
    return;
  }
  for (int64_t k = 0; k < matrix.columns; ++k) {
    const int64_t b = k / kGroup, i = k % kGroup;
    if (matrix.dtype == DType::kQ4_1) {
      const auto& block = reinterpret_cast<const PanelBlockQ4_1*>(panel)[b];
      const uint8_t byte = block.quants[i % 16 / 4][lane * 4 + i % 4];
      const float quant = static_cast<float>(i < 16 ? byte & 15 : byte >> 4);
      out[k] = HalfToFloat(block.scale[lane]) * quant + HalfToFloat(block.min[lane]);
    } else {
      const PanelQ8_0 p = PanelQ8_0At(panel, matrix.columns / kGroup);
      out[k] = HalfToFloat(p.scale[b][lane]) * static_cast<float>(p.quants[b][i / 4][lane * 4 + i % 4] - 128);
    }
  }
}

}  // namespace headrace
