// Attention on AVX-512. All queries of a unit (rows x heads of the group) go through a page together, kQueries at a
// time: each load of K or V serves that many fused multiply-adds.
#include "kernels/avx512/attention.h"

#include <immintrin.h>

#include "kernels/avx512/lanes.h"

namespace headrace {
namespace {

// Queries of one register block: with four vectors of tokens or of elements they are 24 sums.
constexpr int kQueries = 6;
constexpr int kQueriesMax = kAttentionRowsMax * kGroupHeadsMax;

// One unit at one page. Queries are in order of row, then head; query i belongs to row i / group_heads.
struct Page {
  const Attention& op;
  const float* q;  // [queries][head_dim], scaled
  float* p;        // [queries][64]: scores, then probabilities
  float* o;        // [queries][head_dim], running
  float *m, *l;    // [queries], running
  float *a, *b;    // [queries], weights of the running state and of this page
  float* floats;   // [64 * head_dim]: the page's K, then V, as floats, where many queries read them
  int queries;
  int64_t first_token;  // of the page

  // Tokens of this page that query i sees; <= 0: none.
  HR_KERNEL_INLINE int Valid(int i) const {
    const int64_t left = op.first_position + i / op.group_heads + 1 - first_token;
    return static_cast<int>(left < kPageTokens ? left : kPageTokens);
  }
};

HR_KERNEL_INLINE __m512 Load16(const uint16_t* p) { return LoadHalves(p); }
HR_KERNEL_INLINE __m512 Load16(const float* p) { return _mm512_loadu_ps(p); }

void ToFloats(const uint16_t* halves, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) _mm512_storeu_ps(out + i, LoadHalves(halves + i));
}

// Scores of queries [first, first + N) over all 64 slots; slots without a token hold anything.
template <int N, typename T>
void Scores(const Page& page, int first, const T* k_page) {
  const int head_dim = page.op.head_dim;
  const float* q = page.q + first * head_dim;
  __m512 score[N][4];
  HR_UNROLL for (int n = 0; n < N; ++n) { HR_UNROLL for (int j = 0; j < 4; ++j) score[n][j] = _mm512_setzero_ps(); }
  for (int d = 0; d < head_dim; ++d) {
    const T* k = k_page + d * kPageTokens;
    const __m512 keys[4] = {Load16(k), Load16(k + 16), Load16(k + 32), Load16(k + 48)};
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m512 x = _mm512_set1_ps(q[n * head_dim + d]);
      HR_UNROLL for (int j = 0; j < 4; ++j) score[n][j] = _mm512_fmadd_ps(x, keys[j], score[n][j]);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int j = 0; j < 4; ++j) {
      _mm512_storeu_ps(page.p + (first + n) * kPageTokens + 16 * j, score[n][j]);
    }
  }
}

// Probabilities and sum of one query; returns its largest score. kWhole: it sees all 64 tokens.
template <bool kWhole>
HR_KERNEL_INLINE float Softmax(float* p, int valid, float* sum_out) {
  __m512 score[4];
  HR_UNROLL for (int j = 0; j < 4; ++j) score[j] = _mm512_loadu_ps(p + 16 * j);
  __m512 top;
  if constexpr (kWhole) {
    top = _mm512_max_ps(_mm512_max_ps(score[0], score[1]), _mm512_max_ps(score[2], score[3]));
  } else {
    top = _mm512_set1_ps(-3.402823466e38f);
    HR_UNROLL for (int j = 0; j < 4; ++j) top = _mm512_mask_max_ps(top, Mask(valid - 16 * j), top, score[j]);
  }
  const float largest = _mm512_reduce_max_ps(top);
  __m512 sum = _mm512_setzero_ps();
  HR_UNROLL for (int j = 0; j < 4; ++j) {
    __m512 e = Exp16(_mm512_sub_ps(score[j], _mm512_set1_ps(largest)));
    if constexpr (!kWhole) e = _mm512_maskz_mov_ps(Mask(valid - 16 * j), e);
    _mm512_storeu_ps(p + 16 * j, e);
    sum = j == 0 ? e : _mm512_add_ps(sum, e);
  }
  *sum_out = Tree(sum);
  return largest;
}

// Probabilities of all queries, and how the page joins their running states.
void Softmaxes(const Page& page) {
  float m[kQueriesMax + 16], l[kQueriesMax + 16];
  for (int i = 0; i < page.queries; ++i) {
    const int valid = page.Valid(i);
    m[i] = l[i] = 0;
    float* p = page.p + i * kPageTokens;
    if (valid == kPageTokens) {
      m[i] = Softmax<true>(p, valid, &l[i]);
    } else if (valid > 0) {
      m[i] = Softmax<false>(p, valid, &l[i]);
    }
  }
  for (int i = 0; i < page.queries; i += 16) {
    __mmask16 seen = 0;
    for (int j = i; j < page.queries && j < i + 16; ++j) {
      if (page.Valid(j) > 0) seen = static_cast<__mmask16>(seen | 1u << (j - i));
    }
    const __m512 new_m = _mm512_maskz_loadu_ps(seen, m + i), new_l = _mm512_maskz_loadu_ps(seen, l + i);
    if (page.first_token == 0) {
      _mm512_mask_storeu_ps(page.m + i, seen, new_m);
      _mm512_mask_storeu_ps(page.l + i, seen, new_l);
      continue;
    }
    const __m512 run_m = _mm512_maskz_loadu_ps(seen, page.m + i), run_l = _mm512_maskz_loadu_ps(seen, page.l + i);
    const __m512 top = _mm512_max_ps(new_m, run_m);
    const __m512 a = Exp16(_mm512_sub_ps(run_m, top)), b = Exp16(_mm512_sub_ps(new_m, top));
    _mm512_mask_storeu_ps(page.m + i, seen, top);
    _mm512_mask_storeu_ps(page.l + i, seen, _mm512_fmadd_ps(run_l, a, _mm512_mul_ps(new_l, b)));
    _mm512_mask_storeu_ps(page.a + i, seen, a);
    _mm512_mask_storeu_ps(page.b + i, seen, b);
  }
}

// Adds elements [d0, d0 + 16 * C) of the page's output to the running states of queries [first, first + N).
template <int N, int C, typename T>
HR_KERNEL_INLINE void ValueColumns(const Page& page, int first, const T* v_page, int d0) {
  const int head_dim = page.op.head_dim;
  const float* p = page.p + first * kPageTokens;
  __m512 o[N][C];
  HR_UNROLL for (int n = 0; n < N; ++n) { HR_UNROLL for (int c = 0; c < C; ++c) o[n][c] = _mm512_setzero_ps(); }
  // Rows rise with the query: the first sees the fewest tokens, the last the most.
  const int seen_by_all = page.Valid(first), seen = page.Valid(first + N - 1);
  int t = 0;
  for (; t < seen_by_all; ++t) {
    __m512 values[C];
    HR_UNROLL for (int c = 0; c < C; ++c) values[c] = Load16(v_page + t * head_dim + d0 + 16 * c);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m512 weight = _mm512_set1_ps(p[n * kPageTokens + t]);
      HR_UNROLL for (int c = 0; c < C; ++c) o[n][c] = _mm512_fmadd_ps(weight, values[c], o[n][c]);
    }
  }
  for (; t < seen; ++t) {
    __m512 values[C];
    HR_UNROLL for (int c = 0; c < C; ++c) values[c] = Load16(v_page + t * head_dim + d0 + 16 * c);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __mmask16 sees = t < page.Valid(first + n) ? 0xFFFF : 0;
      const __m512 weight = _mm512_set1_ps(p[n * kPageTokens + t]);
      HR_UNROLL for (int c = 0; c < C; ++c) o[n][c] = _mm512_mask3_fmadd_ps(weight, values[c], o[n][c], sees);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    if (page.Valid(first + n) <= 0) continue;
    float* run = page.o + (first + n) * head_dim + d0;
    HR_UNROLL for (int c = 0; c < C; ++c) {
      __m512 merged = o[n][c];
      if (page.first_token != 0) {
        merged = _mm512_fmadd_ps(_mm512_loadu_ps(run + 16 * c), _mm512_set1_ps(page.a[first + n]),
                                 _mm512_mul_ps(merged, _mm512_set1_ps(page.b[first + n])));
      }
      _mm512_storeu_ps(run + 16 * c, merged);
    }
  }
}

template <int N, typename T>
void Values(const Page& page, int first, const T* v_page) {
  int d = 0;
  for (; d + 64 <= page.op.head_dim; d += 64) ValueColumns<N, 4>(page, first, v_page, d);
  for (; d < page.op.head_dim; d += 16) ValueColumns<N, 1>(page, first, v_page, d);
}

template <typename T>
using BlockFn = void (*)(const Page&, int, const T*);
template <typename T>
constexpr BlockFn<T> kScores[kQueries] = {Scores<1, T>, Scores<2, T>, Scores<3, T>,
                                          Scores<4, T>, Scores<5, T>, Scores<6, T>};
template <typename T>
constexpr BlockFn<T> kValues[kQueries] = {Values<1, T>, Values<2, T>, Values<3, T>,
                                          Values<4, T>, Values<5, T>, Values<6, T>};

template <typename T>
void EachBlock(const BlockFn<T>* blocks, const Page& page, const T* data) {
  for (int i = 0; i < page.queries; i += kQueries) {
    const int left = page.queries - i;
    blocks[(left < kQueries ? left : kQueries) - 1](page, i, data);
  }
}

void AttendPage(const Page& page) {
  const Attention& op = page.op;
  const int64_t at = op.block_table[page.first_token / kPageTokens] * op.block_stride;
  const int64_t elements = int64_t{kPageTokens} * op.head_dim;
  if (page.queries <= kQueries) {
    EachBlock(kScores<uint16_t>, page, op.k_pages + at);
    Softmaxes(page);
    return EachBlock(kValues<uint16_t>, page, op.v_pages + at);
  }
  ToFloats(op.k_pages + at, elements, page.floats);
  EachBlock<float>(kScores<float>, page, page.floats);
  Softmaxes(page);
  // Slots beyond the last query's token are not read.
  ToFloats(op.v_pages + at, int64_t{page.Valid(page.queries - 1)} * op.head_dim, page.floats);
  EachBlock<float>(kValues<float>, page, page.floats);
}

}  // namespace

void Avx512Attend(const Attention& op) {
  const int heads = op.group_heads, queries = op.rows * heads;
  const int64_t q_floats = int64_t{heads} * op.head_dim;
  constexpr int64_t kScalars = kQueriesMax;
  float* q = op.scratch;
  float* o = q + kAttentionRowsMax * q_floats;
  float* p = o + kAttentionRowsMax * q_floats;
  float* m = p + int64_t{kAttentionRowsMax} * heads * kPageTokens;
  Page page{op, q, p, o, m, m + kScalars, m + 2 * kScalars, m + 3 * kScalars, m + 4 * kScalars, queries, 0};
  const __m512 scale = _mm512_set1_ps(op.softmax_scale);
  for (int r = 0; r < op.rows; ++r) {
    const float* from = op.queries + r * op.query_stride;
    for (int64_t i = 0; i < q_floats; i += 16)
      _mm512_storeu_ps(q + r * q_floats + i, _mm512_mul_ps(_mm512_loadu_ps(from + i), scale));
  }
  for (; page.first_token < op.first_position + op.rows; page.first_token += kPageTokens) AttendPage(page);
  for (int i = 0; i < queries; ++i) {
    float* out = op.out + i / heads * op.out_stride + int64_t{i % heads} * op.head_dim;
    const __m512 sum = _mm512_set1_ps(page.l[i]);
    for (int d = 0; d < op.head_dim; d += 16)
      _mm512_storeu_ps(out + d, _mm512_div_ps(_mm512_loadu_ps(o + int64_t{i} * op.head_dim + d), sum));
  }
}

void Avx512StoreKv(const float* k, const float* v, int head_dim, int slot, uint16_t* k_page, uint16_t* v_page) {
  uint16_t halves[kHeadDimMax];
  for (int d = 0; d < head_dim; d += 16) {
    const __m256i hv = _mm512_cvtps_ph(_mm512_loadu_ps(v + d), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(v_page + slot * head_dim + d), hv);
    const __m256i hk = _mm512_cvtps_ph(_mm512_loadu_ps(k + d), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(halves + d), hk);
  }
  for (int d = 0; d < head_dim; ++d) k_page[d * kPageTokens + slot] = halves[d];
}

}  // namespace headrace
