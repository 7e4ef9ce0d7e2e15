// Attention on AVX2.
#include "kernels/avx2/attention.h"

#include "kernels/avx2/lanes.h"

namespace headrace {
namespace {

// Scores of 32 tokens (half a page) for G heads.
template <int G>
HR_KERNEL_INLINE void HalfPageScores(const float* q, int head_dim, const uint16_t* k_half, float* scores) {
  __m256 s[G][4];
  HR_UNROLL for (int h = 0; h < G; ++h) { HR_UNROLL for (int j = 0; j < 4; ++j) s[h][j] = _mm256_setzero_ps(); }
  for (int d = 0; d < head_dim; ++d) {
    const uint16_t* k = k_half + d * kPageTokens;
    HR_UNROLL for (int j = 0; j < 4; ++j) {
      const __m256 keys = LoadHalves(k + 8 * j);
      HR_UNROLL for (int h = 0; h < G; ++h) s[h][j] =
          _mm256_fmadd_ps(_mm256_set1_ps(q[h * head_dim + d]), keys, s[h][j]);
    }
  }
  HR_UNROLL for (int h = 0; h < G; ++h) {
    HR_UNROLL for (int j = 0; j < 4; ++j) _mm256_storeu_ps(scores + h * kPageTokens + 8 * j, s[h][j]);
  }
}

// Turns the scores of one head into probabilities; lanes beyond `valid` become +0.
HR_KERNEL_INLINE void Softmax64(float* p, int valid, float* m, float* l) {
  const __m256 lowest = _mm256_set1_ps(-3.402823466e38f);
  __m256 top = lowest;
  HR_UNROLL for (int j = 0; j < 8; ++j) {
    const __m256 mask = _mm256_castsi256_ps(LaneMask(valid - 8 * j));
    top = _mm256_max_ps(top, _mm256_blendv_ps(lowest, _mm256_loadu_ps(p + 8 * j), mask));
  }
  *m = Largest(top);
  __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  HR_UNROLL for (int j = 0; j < 8; ++j) {
    const __m256 mask = _mm256_castsi256_ps(LaneMask(valid - 8 * j));
    const __m256 e = _mm256_and_ps(mask, Exp8(_mm256_sub_ps(_mm256_loadu_ps(p + 8 * j), _mm256_set1_ps(*m))));
    _mm256_storeu_ps(p + 8 * j, e);
    sum[j % 2] = _mm256_add_ps(sum[j % 2], e);
  }
  *l = Tree(sum[0], sum[1]);
}

// Adds 8 * C elements from d0 of G heads to the running states.
template <int G, int C>
HR_KERNEL_INLINE void PageValues(const float* p, const uint16_t* v_page, int head_dim, int d0, int valid, bool first,
                                 const float* a, const float* b, float* states, int64_t state_stride) {
  __m256 o[G][C];
  HR_UNROLL for (int h = 0; h < G; ++h) { HR_UNROLL for (int c = 0; c < C; ++c) o[h][c] = _mm256_setzero_ps(); }
  for (int t = 0; t < valid; ++t) {
    const uint16_t* v = v_page + t * head_dim + d0;
    HR_UNROLL for (int c = 0; c < C; ++c) {
      const __m256 values = LoadHalves(v + 8 * c);
      HR_UNROLL for (int h = 0; h < G; ++h) o[h][c] =
          _mm256_fmadd_ps(_mm256_set1_ps(p[h * kPageTokens + t]), values, o[h][c]);
    }
  }
  HR_UNROLL for (int h = 0; h < G; ++h) {
    float* run = states + h * state_stride + 16 + d0;
    HR_UNROLL for (int c = 0; c < C; ++c) {
      __m256 merged = o[h][c];
      if (!first) {
        merged = _mm256_fmadd_ps(_mm256_loadu_ps(run + 8 * c), _mm256_set1_ps(a[h]),
                                 _mm256_mul_ps(merged, _mm256_set1_ps(b[h])));
      }
      _mm256_storeu_ps(run + 8 * c, merged);
    }
  }
}

template <int G>
void AttendPage(const Attention& op, const float* q, float* states, int64_t page, int valid, float* p) {
  const int64_t at = op.block_table[page] * op.block_stride, stride = op.head_dim + 16;
  float m[G], l[G], a[G], b[G];
  HalfPageScores<G>(q, op.head_dim, op.k_pages + at, p);
  HalfPageScores<G>(q, op.head_dim, op.k_pages + at + 32, p + 32);
  const bool first = page == 0;
  HR_UNROLL for (int h = 0; h < G; ++h) {
    Softmax64(p + h * kPageTokens, valid, &m[h], &l[h]);
    float* state = states + h * stride;
    if (first) {
      state[0] = m[h];
      state[1] = l[h];
      continue;
    }
    const float top = m[h] > state[0] ? m[h] : state[0];
    a[h] = CanonicalExp(state[0] - top);
    b[h] = CanonicalExp(m[h] - top);
    state[0] = top;
    state[1] = FusedMulAdd(state[1], a[h], l[h] * b[h]);
  }
  int d = 0;
  for (; d + 32 <= op.head_dim; d += 32)
    PageValues<G, 4>(p, op.v_pages + at, op.head_dim, d, valid, first, a, b, states, stride);
  for (; d < op.head_dim; d += 8)
    PageValues<G, 1>(p, op.v_pages + at, op.head_dim, d, valid, first, a, b, states, stride);
}

void AttendRow(const Attention& op, const float* q, float* states, int64_t page, int valid, float* p) {
  const int64_t stride = op.head_dim + 16;
  int h = 0;
  for (; h + 3 <= op.group_heads; h += 3) AttendPage<3>(op, q + h * op.head_dim, states + h * stride, page, valid, p);
  q += h * op.head_dim;
  states += h * stride;
  switch (op.group_heads - h) {
    case 2:
      return AttendPage<2>(op, q, states, page, valid, p);
    case 1:
      return AttendPage<1>(op, q, states, page, valid, p);
    default:
      return;
  }
}

}  // namespace

void Avx2Attend(const Attention& op) {
  const int64_t heads = op.group_heads, q_floats = heads * op.head_dim, state_floats = heads * (op.head_dim + 16);
  float* q = op.scratch;
  float* states = q + kAttentionRowsMax * q_floats;
  float* p = states + kAttentionRowsMax * state_floats;
  const __m256 scale = _mm256_set1_ps(op.softmax_scale);
  for (int r = 0; r < op.rows; ++r) {
    const float* from = op.queries + r * op.query_stride;
    for (int64_t i = 0; i < q_floats; i += 8)
      _mm256_storeu_ps(q + r * q_floats + i, _mm256_mul_ps(_mm256_loadu_ps(from + i), scale));
  }
  const int64_t tokens = op.first_position + op.rows;
  for (int64_t page = 0; page * kPageTokens < tokens; ++page) {
    for (int r = 0; r < op.rows; ++r) {
      const int64_t left = op.first_position + r + 1 - page * kPageTokens;
      if (left <= 0) continue;
      AttendRow(op, q + r * q_floats, states + r * state_floats, page,
                static_cast<int>(left < kPageTokens ? left : kPageTokens), p);
    }
  }
  for (int r = 0; r < op.rows; ++r) {
    for (int64_t h = 0; h < heads; ++h) {
      const float* state = states + r * state_floats + h * (op.head_dim + 16);
      float* out = op.out + r * op.out_stride + h * op.head_dim;
      const __m256 sum = _mm256_set1_ps(state[1]);
      for (int d = 0; d < op.head_dim; d += 8)
        _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(state + 16 + d), sum));
    }
  }
}

void Avx2StoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page) {
  uint16_t halves[kHeadDimMax];
  for (int d = 0; d < head_dim; d += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(v_page + slot * head_dim + d),
                     _mm256_cvtps_ph(_mm256_loadu_ps(v + d), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + d),
                     _mm256_cvtps_ph(_mm256_loadu_ps(k + d), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  for (int d = 0; d < head_dim; ++d) k_page[d * kPageTokens + slot] = halves[d];
}

}  // namespace headrace
