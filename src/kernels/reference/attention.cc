// Scalar truth of attention.
#include "kernels/reference/attention.h"

#include <cstring>

#include "kernels/canonical.h"
#include "tensor/half.h"

namespace headrace {
namespace {

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

}  // namespace

void ReferenceAttend(const Attention& op) {
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

void ReferenceStoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page) {
  for (int d = 0; d < head_dim; ++d) {
    k_page[d * kPageTokens + slot] = FloatToHalf(k[d]);
    v_page[slot * head_dim + d] = FloatToHalf(v[d]);
  }
}

}  // namespace headrace
