// Scalar truth of everything but the matrix product.
#include <cmath>
#include <cstring>

#include "kernels/canonical.h"
#include "kernels/kernel_table.h"
#include "kernels/reference/matmul.h"
#include "tensor/half.h"

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
  int32_t sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const float rest = FusedMulAdd(-static_cast<float>(a.quants[at * kGroup + i]), a.scale[at], x[i]);
    const float q = RoundToEven(rest * inverse_rest);
    const auto clamped = static_cast<int32_t>(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    a.rest_quants[entry * kGroup + i] = static_cast<int8_t>(clamped);
    sum += clamped;
  }
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = sum;
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(sum);
}

void QuantizeRow(const Activations& a, int64_t row) {
  const float* x = a.values + row * a.value_stride;
  float squares = 0;
  for (int64_t g = 0; g < a.groups(); ++g) {
    const float largest = LargestMagnitude(x + g * kGroup);
    a.scale[a.GroupIndex(row, g)] = largest;  // for the second pass
    squares = squares + largest * largest;
  }
  const float threshold = a.wide_ratio * squares / static_cast<float>(a.groups());
  for (int64_t g = 0; g < a.groups(); ++g, x += kGroup) {
    const int64_t at = a.GroupIndex(row, g);
    const float largest = a.scale[at];
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int32_t sum = 0;
    for (int i = 0; i < kGroup; ++i) {
      const int32_t q = static_cast<int32_t>(RoundToEven(x[i] * inverse));
      a.quants[at * kGroup + i] = static_cast<int8_t>(q);
      sum += q;
    }
    a.scale[at] = largest / 127.0f;
    a.sum[at] = sum;
    a.scaled_sum[at] = a.scale[at] * static_cast<float>(sum);
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

void StoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page) {
  for (int d = 0; d < head_dim; ++d) {
    k_page[d * kPageTokens + slot] = FloatToHalf(k[d]);
    v_page[slot * head_dim + d] = FloatToHalf(v[d]);
  }
}

float RowMax(const float* x, int64_t n) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void ExpRow(const float* x, int64_t n, float max, float inverse_temperature, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = CanonicalExp((x[i] - max) * inverse_temperature);
}

// Scores and probabilities of one head over one page; returns the page's (m, l).
void PageSoftmax(const Attention& op, const float* q, const uint16_t* k_page, int valid, float* p, float* m, float* l) {
  float largest = 0;
  for (int t = 0; t < kPageTokens; ++t) {
    if (t >= valid) {
      p[t] = 0;
      continue;
    }
    float score = 0;
    for (int d = 0; d < op.head_dim; ++d) {
      score = FusedMulAdd(q[d] * op.softmax_scale, HalfToFloat(k_page[d * kPageTokens + t]), score);
    }
    p[t] = score;
    largest = t == 0 || score > largest ? score : largest;
  }
  float lanes[16] = {};
  for (int t = 0; t < kPageTokens; ++t) {
    p[t] = t < valid ? CanonicalExp(p[t] - largest) : 0.0f;
    lanes[t % 16] = lanes[t % 16] + p[t];
  }
  *m = largest;
  *l = TreeSum16(lanes);
}

// Adds a page's (m, l, o) to the running state of one head: state[0] = m, state[1] = l, state + 16 = o.
void MergePage(int head_dim, bool first, float m, float l, const float* o, float* state) {
  if (first) {
    state[0] = m;
    state[1] = l;
    std::memcpy(state + 16, o, sizeof(float) * static_cast<size_t>(head_dim));
    return;
  }
  const float top = m > state[0] ? m : state[0];
  const float a = CanonicalExp(state[0] - top), b = CanonicalExp(m - top);
  state[0] = top;
  state[1] = FusedMulAdd(state[1], a, l * b);
  for (int d = 0; d < head_dim; ++d) state[16 + d] = FusedMulAdd(state[16 + d], a, o[d] * b);
}

void Attend(const Attention& op) {
  float p[kPageTokens], o[kHeadDimMax], m, l;
  for (int r = 0; r < op.rows; ++r) {
    const int64_t tokens = op.first_position + r + 1;
    for (int h = 0; h < op.group_heads; ++h) {
      float* state = op.scratch;
      for (int64_t page = 0; page * kPageTokens < tokens; ++page) {
        const int64_t left = tokens - page * kPageTokens;
        const int valid = static_cast<int>(left < kPageTokens ? left : kPageTokens);
        const int64_t at = op.block_table[page] * op.block_stride;
        PageSoftmax(op, op.queries + r * op.query_stride + h * op.head_dim, op.k_pages + at, valid, p, &m, &l);
        for (int d = 0; d < op.head_dim; ++d) o[d] = 0;
        for (int t = 0; t < valid; ++t) {
          const uint16_t* v = op.v_pages + at + t * op.head_dim;
          for (int d = 0; d < op.head_dim; ++d) o[d] = FusedMulAdd(p[t], HalfToFloat(v[d]), o[d]);
        }
        MergePage(op.head_dim, page == 0, m, l, o, state);
      }
      float* out = op.out + r * op.out_stride + h * op.head_dim;
      for (int d = 0; d < op.head_dim; ++d) out[d] = state[16 + d] / state[1];
    }
  }
}

}  // namespace

const KernelTable& ReferenceKernels() {
  static constexpr KernelTable kTable{"reference", QuantizeRow, QuantizeRest, ReferenceMatMul, nullptr, RmsNorm,
                                      SiluMul,     Attend,      StoreKv,      RowMax,          ExpRow};
  return kTable;
}

}  // namespace headrace
