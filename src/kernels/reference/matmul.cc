// Scalar truth of the matrix product: the file's formats read in their stored form, one output at a time.
#include "kernels/reference/matmul.h"

#include <cstring>

#include "kernels/canonical.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace headrace {
namespace {

// 32 columns of one row: value = scale * (quant * factor of its half) + min.
struct WeightGroup {
  int8_t quants[kGroup];
  int32_t factor[2] = {1, 1};  // Q6_K has an integer scale for each 16
  float scale = 0;
  float min = 0;
  bool has_min = false;
};

uint16_t LoadU16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
uint8_t U8(const std::byte* p) { return static_cast<uint8_t>(*p); }

void Nibbles(const std::byte* bytes, int offset, int8_t* quants) {
  for (int i = 0; i < 16; ++i) {
    quants[i] = static_cast<int8_t>((U8(bytes + i) & 15) - offset);
    quants[i + 16] = static_cast<int8_t>((U8(bytes + i) >> 4) - offset);
  }
}
void FifthBits(const std::byte* bits, int offset, int8_t* quants) {
  uint32_t high;
  std::memcpy(&high, bits, sizeof high);
  for (int i = 0; i < kGroup; ++i) quants[i] = static_cast<int8_t>(quants[i] + ((high >> i & 1) << 4) - offset);
}

void UnpackK45(const std::byte* block, int j, bool five_bits, WeightGroup& g) {
  const float d = HalfToFloat(LoadU16(block)), dmin = HalfToFloat(LoadU16(block + 2));
  const ScaleMin pair = UnpackScaleMin(reinterpret_cast<const uint8_t*>(block) + 4, j);
  const std::byte* high = block + 16;
  const std::byte* low = block + (five_bits ? 48 : 16) + j / 2 * 32;
  for (int i = 0; i < kGroup; ++i) {
    int q = j % 2 == 0 ? U8(low + i) & 15 : U8(low + i) >> 4;
    if (five_bits) q += (U8(high + i) >> j & 1) << 4;
    g.quants[i] = static_cast<int8_t>(q);
  }
  g.scale = d * static_cast<float>(pair.scale);
  g.min = -(dmin * static_cast<float>(pair.min));
  g.has_min = true;
}

void UnpackQ6K(const std::byte* block, int j, WeightGroup& g) {
  // 128 columns use 64 bytes of low nibbles and 32 bytes of high pairs; j counts groups of 32 within 256 columns.
  const std::byte* low = block + j / 4 * 64 + j % 2 * 32;
  const std::byte* high = block + 128 + j / 4 * 32;
  const int part = j % 4;
  for (int i = 0; i < kGroup; ++i) {
    const int nibble = part < 2 ? U8(low + i) & 15 : U8(low + i) >> 4;
    g.quants[i] = static_cast<int8_t>((nibble | (U8(high + i) >> (2 * part) & 3) << 4) - 32);
  }
  const std::byte* scales = block + 192 + j * 2;
  g.factor[0] = static_cast<int8_t>(scales[0]);
  g.factor[1] = static_cast<int8_t>(scales[1]);
  g.scale = HalfToFloat(LoadU16(block + 208));
}

WeightGroup UnpackRowGroup(DType dtype, const std::byte* row, int64_t group) {
  WeightGroup g;
  switch (dtype) {
    case DType::kQ4_0:
      row += group * 18;
      g.scale = HalfToFloat(LoadU16(row));
      Nibbles(row + 2, 8, g.quants);
      break;
    case DType::kQ5_0:
      row += group * 22;
      g.scale = HalfToFloat(LoadU16(row));
      Nibbles(row + 6, 0, g.quants);
      FifthBits(row + 2, 16, g.quants);
      break;
    case DType::kQ5_1:
      row += group * 24;
      g.scale = HalfToFloat(LoadU16(row));
      g.min = HalfToFloat(LoadU16(row + 2));
      g.has_min = true;
      Nibbles(row + 8, 0, g.quants);
      FifthBits(row + 4, 0, g.quants);
      break;
    case DType::kQ4_K:
      UnpackK45(row + group / 8 * 144, static_cast<int>(group % 8), false, g);
      break;
    case DType::kQ5_K:
      UnpackK45(row + group / 8 * 176, static_cast<int>(group % 8), true, g);
      break;
    default:
      UnpackQ6K(row + group / 8 * 210, static_cast<int>(group % 8), g);
      break;
  }
  return g;
}

WeightGroup UnpackPanelGroup(const PackedMatrix& w, const std::byte* panel, int lane, int64_t group) {
  WeightGroup g;
  if (w.dtype == DType::kQ4_1) {
    const auto& block = reinterpret_cast<const PanelBlockQ4_1*>(panel)[group];
    g.scale = HalfToFloat(block.scale[lane]);
    g.min = HalfToFloat(block.min[lane]);
    g.has_min = true;
    for (int i = 0; i < kGroup; ++i) {
      const uint8_t byte = block.quants[i % 16 / 4][lane * 4 + i % 4];
      g.quants[i] = static_cast<int8_t>(i < 16 ? byte & 15 : byte >> 4);
    }
  } else {
    const PanelQ8_0 p = PanelQ8_0At(panel, w.columns / kGroup);
    g.scale = HalfToFloat(p.scale[group][lane]);
    for (int i = 0; i < kGroup; ++i) g.quants[i] = static_cast<int8_t>(p.quants[group][i / 4][lane * 4 + i % 4] - 128);
  }
  return g;
}

void StoreOne(const MatMul& op, int64_t m, int64_t r, float acc) {
  float& out = op.out[m * op.out_stride + r];
  out = op.accumulate ? out + acc : acc;
}

// acc plus one group's share of the dot product, from the first plane or the second.
float AddGroup(const WeightGroup& w, const int8_t* quants, float scale, float scaled_sum, float acc) {
  int32_t dot[2] = {0, 0};
  for (int i = 0; i < kGroup; ++i) dot[i / 16] += w.quants[i] * quants[i];
  const int32_t sum = dot[0] * w.factor[0] + dot[1] * w.factor[1];
  if (w.has_min) acc = FusedMulAdd(w.min, scaled_sum, acc);
  return FusedMulAdd(static_cast<float>(sum), w.scale * scale, acc);
}

int64_t RestEntry(const Activations& x, int64_t row, int64_t group) {
  int64_t entry = x.rest_first[row / kWideChunkRows * (x.groups() + 1) + group];
  while (x.rest_row[entry] != row) ++entry;
  return entry;
}

void QuantisedRow(const MatMul& op, const std::byte* panel, int lane, int64_t r) {
  const PackedMatrix& w = op.weights;
  const Activations& x = op.activations;
  for (int64_t m = 0; m < x.rows; ++m) {
    float acc = 0, rest = 0;
    for (int64_t g = 0; g < x.groups(); ++g) {
      const WeightGroup group = w.row_bytes != 0 ? UnpackRowGroup(w.dtype, panel + lane * w.row_bytes, g)
                                                 : UnpackPanelGroup(w, panel, lane, g);
      const int64_t at = x.GroupIndex(m, g);
      acc = AddGroup(group, x.quants + at * kGroup, x.scale[at], x.scaled_sum[at], acc);
      if (x.wide[m * x.groups() + g] != 0) {
        const int64_t e = RestEntry(x, m, g);
        rest = AddGroup(group, x.rest_quants + e * kGroup, x.rest_scale[e], x.rest_scaled_sum[e], rest);
      }
    }
    StoreOne(op, m, r, acc);
    if (x.row_is_wide[m] != 0) op.out[m * op.out_stride + r] = op.out[m * op.out_stride + r] + rest;
  }
}

float FloatWeight(const PackedMatrix& w, const std::byte* panel, int lane, int64_t k) {
  if (w.dtype == DType::kF32) return reinterpret_cast<const float*>(panel)[k * kPanelRows + lane];
  const uint16_t bits = LoadU16(panel + lane * w.row_bytes + k * 2);
  return w.dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
}

void FloatRow(const MatMul& op, const std::byte* panel, int lane, int64_t r) {
  const PackedMatrix& w = op.weights;
  for (int64_t m = 0; m < op.activations.rows; ++m) {
    const float* x = op.activations.values + m * op.activations.value_stride;
    float acc = 0;
    for (int64_t k = 0; k < w.columns; ++k) acc = FusedMulAdd(FloatWeight(w, panel, lane, k), x[k], acc);
    StoreOne(op, m, r, acc);
  }
}

}  // namespace

void ReferenceMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const PackedMatrix& w = op.weights;
  const bool is_float = w.dtype == DType::kF32 || w.dtype == DType::kF16 || w.dtype == DType::kBF16;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const std::byte* panel = w.data + p * w.panel_bytes;
    for (int lane = 0; lane < kPanelRows && p * kPanelRows + lane < w.rows; ++lane) {
      if (is_float) {
        FloatRow(op, panel, lane, p * kPanelRows + lane);
      } else {
        QuantisedRow(op, panel, lane, p * kPanelRows + lane);
      }
    }
  }
}

}  // namespace headrace
