// Packing of file rows into panels. Runs at load time on all threads; the layouts are in formats.h.
#include <cstring>

#include "base/check.h"
#include "kernels/kernel_table.h"
#include "kernels/panel_reader.h"
#include "tensor/dequantize.h"

namespace headrace {
namespace {

int64_t FileRowBytes(DType dtype, int64_t columns) {
  const DTypeInfo& info = Info(dtype);
  return columns / info.block_elements * info.block_bytes;
}

int64_t PanelBytes(DType dtype, int64_t columns) {
  if (IsQuantised(dtype)) return FormatOf(dtype).PanelBytes(columns / kGroup);
  return FloatPanelBytes(dtype, columns);
}

uint16_t LoadU16(const uint8_t* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// ---- codes of one block of a file's row: GGUF's blocks, drawn in tensor/dequantize.cc

void Nibbles(const uint8_t* bytes, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15;
    codes[i + 16] = bytes[i] >> 4;
  }
}
void FifthBits(const uint8_t* bits, uint8_t* codes) {
  for (int i = 0; i < kGroup; ++i) codes[i] = static_cast<uint8_t>(codes[i] | (bits[i / 8] >> i % 8 & 1) << 4);
}
// 256 codes of 4 bits: 64 columns to 32 bytes.
void NibblesK(const uint8_t* bytes, uint8_t* codes) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 32; ++i) {
      codes[run * 32 + i] = static_cast<uint8_t>(bytes[run / 2 * 32 + i] >> (run % 2 * 4) & 15);
    }
  }
}
// 256 codes of 2 bits: 128 columns to 32 bytes.
void PairsK(const uint8_t* bytes, uint8_t* codes) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 32; ++i) {
      codes[run * 32 + i] = static_cast<uint8_t>(bytes[run / 4 * 32 + i] >> (run % 4 * 2) & 3);
    }
  }
}
// One bit more for each of 256 codes: bit `group` of byte i % 32.
void BitsK(const uint8_t* bytes, int shift, uint8_t* codes) {
  for (int run = 0; run < 8; ++run) {
    for (int i = 0; i < 32; ++i) {
      uint8_t& code = codes[run * 32 + i];
      code = static_cast<uint8_t>(code | (bytes[i] >> run & 1) << shift);
    }
  }
}
void CodesQ6K(const uint8_t* block, uint8_t* codes) {
  PairsK(block + 128, codes);
  for (int run = 0; run < 8; ++run) {
    const uint8_t* low = block + run / 4 * 64 + run % 2 * 32;
    for (int i = 0; i < 32; ++i) {
      uint8_t& code = codes[run * 32 + i];
      code = static_cast<uint8_t>(code << 4 | (low[i] >> (run / 2 % 2 * 4) & 15));
    }
  }
}

void ReadCodes(DType dtype, const uint8_t* block, uint8_t* codes) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return Nibbles(block + 2, codes);
    case DType::kQ4_1:
      return Nibbles(block + 4, codes);
    case DType::kMXFP4:
      return Nibbles(block + 1, codes);
    case DType::kQ5_0:
      Nibbles(block + 6, codes);
      return FifthBits(block + 2, codes);
    case DType::kQ5_1:
      Nibbles(block + 8, codes);
      return FifthBits(block + 4, codes);
    case DType::kQ8_0:
      for (int i = 0; i < kGroup; ++i) codes[i] = block[2 + i] ^ 0x80;
      return;
    case DType::kQ2_K:
      return PairsK(block + 16, codes);
    case DType::kQ3_K:
      PairsK(block + 32, codes);
      return BitsK(block, 2, codes);
    case DType::kQ4_K:
      return NibblesK(block + 16, codes);
    case DType::kQ5_K:
      NibblesK(block + 48, codes);
      return BitsK(block + 16, 4, codes);
    default:
      return CodesQ6K(block, codes);
  }
}

// ---- one block into its panel

template <typename T>
T& As(std::byte* p) {
  return *reinterpret_cast<T*>(p);
}

void PackScalesK(DType dtype, const uint8_t* block, int lane, std::byte* head, std::byte* scales) {
  for (int i = 0; i < 16; ++i) {
    const int part = i / 2, h = i % 2;
    if (dtype == DType::kQ2_K) {
      As<ScalesQ2K>(scales).pairs[part][h][lane] = block[i];
    } else if (dtype == DType::kQ3_K) {
      As<FactorsQ36K>(scales).factors[part][h][lane] = static_cast<int8_t>(UnpackScaleQ3_K(block + 96, i));
    } else if (dtype == DType::kQ6_K) {
      As<FactorsQ36K>(scales).factors[part][h][lane] = static_cast<int8_t>(block[192 + i]);
    } else {
      const ScaleMin pair = UnpackScaleMin(block + 4, part);
      As<ScalesQ45K>(scales).scales[part][lane] = pair.scale;
      As<ScalesQ45K>(scales).mins[part][lane] = pair.min;
    }
  }
  const bool has_min = dtype == DType::kQ2_K || dtype == DType::kQ4_K || dtype == DType::kQ5_K;
  const uint8_t* halves = block + (dtype == DType::kQ2_K   ? 80
                                   : dtype == DType::kQ3_K ? 108
                                   : dtype == DType::kQ6_K ? 208
                                                           : 0);
  As<uint16_t[kPanelRows]>(has_min ? scales : head)[lane] = LoadU16(halves);
  if (has_min) As<uint16_t[2][kPanelRows]>(scales)[1][lane] = LoadU16(halves + 2);
}

void PackScales(DType dtype, const uint8_t* block, int lane, std::byte* head, std::byte* scales) {
  if (FormatOf(dtype).block_groups > 1) return PackScalesK(dtype, block, lane, head, scales);
  if (dtype == DType::kMXFP4) {
    head[lane] = static_cast<std::byte>(*block);
  } else if (FormatOf(dtype).kind == GroupKind::kMin) {
    As<ScaleMin16>(scales).scale[lane] = LoadU16(block);
    As<ScaleMin16>(scales).min[lane] = LoadU16(block + 2);
  } else {
    As<uint16_t[kPanelRows]>(head)[lane] = LoadU16(block);
  }
}

// The bits [shift, shift + kBits) of a row's 32 codes into its bytes of a plane, four columns at a time.
template <int kBits>
void PackPlane(const uint8_t* codes, int shift, int lane, std::byte* plane) {
  uint32_t lines[kBits] = {};
  for (int line = 0; line < 8; ++line) {
    uint32_t four;
    std::memcpy(&four, codes + line * 4, sizeof four);
    lines[line % kBits] |= (four >> shift & 0x01010101u * ((1u << kBits) - 1)) << (line / kBits * kBits);
  }
  for (int line = 0; line < kBits; ++line) std::memcpy(plane + line * 64 + lane * 4, &lines[line], sizeof(uint32_t));
}
void PackAnyPlane(const uint8_t* codes, int shift, int bits, int lane, std::byte* plane) {
  switch (bits) {
    case 1:
      return PackPlane<1>(codes, shift, lane, plane);
    case 2:
      return PackPlane<2>(codes, shift, lane, plane);
    case 4:
      return PackPlane<4>(codes, shift, lane, plane);
    default:
      return PackPlane<8>(codes, shift, lane, plane);
  }
}

void PackRow(DType dtype, int64_t columns, const std::byte* row, int lane, std::byte* panel) {
  const PanelFormat format = FormatOf(dtype);
  const int64_t groups = columns / kGroup, block_bytes = Info(dtype).block_bytes;
  const auto* block = reinterpret_cast<const uint8_t*>(row);
  std::byte* out = panel + format.HeadBytes(groups);
  uint8_t codes[256];
  for (int64_t b = 0; b < groups / format.block_groups; ++b, block += block_bytes) {
    PackScales(dtype, block, lane, panel + b * format.head_bytes, out);
    ReadCodes(dtype, block, codes);
    out += format.scale_bytes;
    for (int g = 0; g < format.block_groups; ++g, out += format.group_bytes()) {
      PackAnyPlane(codes + g * kGroup, 0, format.low_bits, lane, out);
      if (format.high_bits == 0) continue;
      PackAnyPlane(codes + g * kGroup, format.low_bits, format.high_bits, lane, out + 64 * format.low_bits);
    }
  }
}

template <size_t kBytes>
void PackFloats(int64_t columns, const std::byte* row, int lane, std::byte* panel) {
  const auto n = static_cast<size_t>(columns);
  for (size_t k = 0; k < n; ++k) {
    std::memcpy(panel + (k * kPanelRows + static_cast<size_t>(lane)) * kBytes, row + k * kBytes, kBytes);
  }
}
void PackFloatRow(int64_t columns, int bytes, const std::byte* row, int lane, std::byte* panel) {
  switch (bytes) {
    case 1:
      return PackFloats<1>(columns, row, lane, panel);
    case 2:
      return PackFloats<2>(columns, row, lane, panel);
    default:
      return PackFloats<4>(columns, row, lane, panel);
  }
}
// One row's scales into the head of its panel; null: 1.
void PackFloatScales(DType dtype, int64_t columns, const float* scales, int lane, std::byte* head) {
  for (int64_t b = 0; b < ScaleBlocks(columns); ++b) {
    As<float>(head + (b * kPanelRows + lane) * int64_t{sizeof(float)}) =
        (scales != nullptr ? scales[b] : 1.0f) * (dtype == DType::kF8E4M3 ? kScaleUnitE4M3 : 1.0f);
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
  matrix.data = data;
  return matrix;
}

void PackPanel(DType dtype, int64_t columns, const std::byte* rows, int64_t row_count, int64_t panel, std::byte* data,
               const float* scales) {
  CHECK_LE(row_count, kPanelRows);
  CHECK(Info(dtype).computable);
  const int64_t bytes = PanelBytes(dtype, columns), row_bytes = FileRowBytes(dtype, columns);
  std::byte* out = data + panel * bytes;
  std::memset(out, 0, static_cast<size_t>(bytes));
  for (int lane = 0; lane < row_count; ++lane) {
    const std::byte* row = rows + lane * row_bytes;
    if (IsQuantised(dtype)) {
      PackRow(dtype, columns, row, lane, out);
    } else {
      PackFloatRow(columns, FloatBytes(dtype), row, lane, out + FloatHeadBytes(dtype, columns));
    }
    if (!HasFloatScales(dtype)) continue;
    PackFloatScales(dtype, columns, scales != nullptr ? scales + lane * ScaleBlocks(columns) : nullptr, lane, out);
  }
}

void UnpackRow(const PackedMatrix& matrix, int64_t row, float* out) {
  CHECK_LT(row, matrix.rows);
  const std::byte* panel = matrix.data + row / kPanelRows * matrix.panel_bytes;
  const int lane = static_cast<int>(row % kPanelRows);
  if (!IsQuantised(matrix.dtype)) {
    ReadPanelFloats(matrix, panel, lane, 0, matrix.columns, out);
    if (!HasFloatScales(matrix.dtype)) return;
    for (int64_t k = 0; k < matrix.columns; ++k) out[k] = ReadPanelScale(panel, lane, k / kScaleColumns) * out[k];
    return;
  }
  const GroupKind kind = FormatOf(matrix.dtype).kind;
  for (int64_t g = 0; g < matrix.columns / kGroup; ++g, out += kGroup) {
    const WeightGroup w = ReadPanelGroup(matrix, panel, lane, g);
    for (int i = 0; i < kGroup; ++i) {
      const int h = i / 16;
      out[i] = w.scale * static_cast<float>(w.factor[h]) * static_cast<float>(w.quants[i]);
      if (kind == GroupKind::kMin) out[i] = out[i] + w.min_scale;
      if (kind == GroupKind::kFactorsAndMins) out[i] = out[i] + w.min_scale * static_cast<float>(w.min[h]);
    }
  }
}

}  // namespace headrace
