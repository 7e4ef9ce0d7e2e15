// Scalar truth of activations and rows.
#include <cmath>

#include "kernels/canonical.h"
#include "kernels/kernel_table.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/matmul.h"

namespace headrace {
namespace {

float LargestMagnitude(const float* x) {
  float largest = 0;
  for (int i = 0; i < kGroup; ++i) {
    const float magnitude = std::fabs(x[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

// What the first plane leaves over, x - scale * q, in steps of scale / 254.
void QuantizeRest(const Activations& a, int64_t row, int64_t group, int64_t entry) {
  const float* x = a.values + row * a.value_stride + group * kGroup;
  const int64_t at = a.GroupIndex(row, group);
  const float largest = LargestMagnitude(x);
  const float inverse_rest = (largest > 0 ? 127.0f / largest : 0.0f) * 254.0f;
  int32_t sum[2] = {0, 0};
  for (int i = 0; i < kGroup; ++i) {
    const float rest = FusedMulAdd(-static_cast<float>(a.quants[at * kGroup + i]), a.scale[at], x[i]);
    const float q = RoundToEven(rest * inverse_rest);
    const auto clamped = static_cast<int32_t>(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    a.rest_quants[entry * kGroup + i] = static_cast<int8_t>(clamped);
    sum[i / 16] += clamped;
  }
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = PackHalfSums(sum[0], sum[1]);
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(sum[0] + sum[1]);
}

void QuantizeRow(const Activations& a, int64_t row) {
  const float* x = a.values + row * a.value_stride;
  float squares[16] = {};
  for (int64_t g = 0; g < a.groups(); ++g) {
    const float largest = LargestMagnitude(x + g * kGroup);
    a.scale[a.GroupIndex(row, g)] = largest;  // for the second pass
    squares[g % 16] = squares[g % 16] + largest * largest;
  }
  const float threshold = a.wide_ratio * TreeSum16(squares) / static_cast<float>(a.groups());
  for (int64_t g = 0; g < a.groups(); ++g, x += kGroup) {
    const int64_t at = a.GroupIndex(row, g);
    const float largest = a.scale[at];
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < kGroup; ++i) {
      const int32_t q = static_cast<int32_t>(RoundToEven(x[i] * inverse));
      a.quants[at * kGroup + i] = static_cast<int8_t>(q);
      sum[i / 16] += q;
    }
    a.scale[at] = largest / 127.0f;
    a.sum[at] = PackHalfSums(sum[0], sum[1]);
    a.scaled_sum[at] = a.scale[at] * static_cast<float>(sum[0] + sum[1]);
    a.wide[row * a.groups() + g] = largest * largest > threshold;
  }
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = FusedMulAdd(x[i], x[i], lanes[i % 16]);
  const float scale = 1.0f / std::sqrt(TreeSum16(lanes) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * weight[i];
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = CanonicalSilu(gate[i]) * up[i];
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = CanonicalGelu(gate[i]) * up[i];
}

float RowMax(const float* x, int64_t n) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void ExpRow(const float* x, int64_t n, float max, float inverse_temperature, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = CanonicalExp((x[i] - max) * inverse_temperature);
}

}  // namespace

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable kTable{
      "reference",     QuantizeRow,      QuantizeRest, ReferenceMatMul, nullptr,
      RmsNorm,         SiluMul,          GeluMul,      ReferenceAttend, ReferenceMergeAttention,
      ReferenceRotate, ReferenceStoreKv, RowMax,       ExpRow,          &kReferenceSampling};
  return kTable;
}

}  // namespace headrace
