// Scalar truth of the matrix product, one output at a time.
#include "kernels/reference/matmul.h"

#include "kernels/canonical.h"
#include "kernels/panel_reader.h"

namespace headrace {
namespace {

void StoreOne(const MatMul& op, int64_t m, int64_t r, float acc) {
  float& out = op.out[m * op.out_stride + r];
  out = op.accumulate ? out + acc : acc;
}

// acc plus one group's share of the dot product, from the first plane or the second.
float AddGroup(GroupKind kind, const WeightGroup& w, const int8_t* quants, float scale, float scaled_sum, float acc) {
  int32_t dot[2] = {0, 0}, sum[2] = {0, 0};
  for (int i = 0; i < kGroup; ++i) {
    dot[i / 16] += w.quants[i] * quants[i];
    sum[i / 16] += quants[i];
  }
  if (kind == GroupKind::kMin) acc = FusedMulAdd(w.min_scale, scaled_sum, acc);
  if (kind == GroupKind::kFactorsAndMins) {
    acc = FusedMulAdd(static_cast<float>(sum[0] * w.min[0] + sum[1] * w.min[1]), w.min_scale * scale, acc);
  }
  return FusedMulAdd(static_cast<float>(dot[0] * w.factor[0] + dot[1] * w.factor[1]), w.scale * scale, acc);
}

int64_t RestEntry(const Activations& x, int64_t row, int64_t group) {
  int64_t entry = x.rest_first[row / kWideChunkRows * (x.groups() + 1) + group];
  while (x.rest_row[entry] != row % kWideChunkRows) ++entry;
  return entry;
}

// One output row of the product, group by group: a group is read once for all activation rows of a chunk.
void QuantisedRow(const MatMul& op, const std::byte* panel, int lane, int64_t r) {
  const PackedMatrix& w = op.weights;
  const Activations& x = op.activations;
  const GroupKind kind = FormatOf(w.dtype).kind;
  for (int64_t first = 0; first < x.rows; first += kWideChunkRows) {
    const int64_t end = first + kWideChunkRows < x.rows ? first + kWideChunkRows : x.rows;
    float acc[kWideChunkRows] = {}, rest[kWideChunkRows] = {};
    for (int64_t g = 0; g < x.groups(); ++g) {
      const WeightGroup group = ReadPanelGroup(w, panel, lane, g);
      for (int64_t m = first; m < end; ++m) {
        const int64_t at = x.GroupIndex(m, g);
        float& sum = acc[m - first];
        sum = AddGroup(kind, group, x.quants + at * kGroup, x.scale[at], x.scaled_sum[at], sum);
        if (x.wide[m * x.groups() + g] == 0) continue;
        const int64_t e = RestEntry(x, m, g);
        float& more = rest[m - first];
        more = AddGroup(kind, group, x.rest_quants + e * kGroup, x.rest_scale[e], x.rest_scaled_sum[e], more);
      }
    }
    for (int64_t m = first; m < end; ++m) {
      StoreOne(op, m, r, acc[m - first]);
      float& out = op.out[m * op.out_stride + r];
      if (x.row_is_wide[m] != 0) out = out + rest[m - first];
    }
  }
}

void FloatRow(const MatMul& op, const std::byte* panel, int lane, int64_t r) {
  const PackedMatrix& w = op.weights;
  const bool scaled = HasFloatScales(w.dtype);
  for (int64_t m = 0; m < op.activations.rows; ++m) {
    const float* x = op.activations.values + m * op.activations.value_stride;
    float acc = 0, weights[kScaleColumns];
    for (int64_t k = 0; k < w.columns; k += kScaleColumns) {
      const int64_t count = w.columns - k < kScaleColumns ? w.columns - k : kScaleColumns;
      ReadPanelFloats(w, panel, lane, k, count, weights);
      float part = scaled ? 0 : acc;
      for (int64_t i = 0; i < count; ++i) part = FusedMulAdd(weights[i], x[k + i], part);
      acc = scaled ? FusedMulAdd(ReadPanelScale(panel, lane, k / kScaleColumns), part, acc) : part;
    }
    StoreOne(op, m, r, acc);
  }
}

}  // namespace

void ReferenceMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const PackedMatrix& w = op.weights;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const std::byte* panel = w.data + p * w.panel_bytes;
    for (int lane = 0; lane < kPanelRows && p * kPanelRows + lane < w.rows; ++lane) {
      if (IsQuantised(w.dtype)) {
        QuantisedRow(op, panel, lane, p * kPanelRows + lane);
      } else {
        FloatRow(op, panel, lane, p * kPanelRows + lane);
      }
    }
  }
}

}  // namespace headrace
