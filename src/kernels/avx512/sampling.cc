// The sampler's passes on AVX-512, equal to the reference to the bit. Intrinsics and plain structs only.
#include "kernels/sampling.h"

#include <immintrin.h>

#include "kernels/avx512/lanes.h"

namespace headrace {
namespace {

constexpr int kVectors = kSampleBlock / 16;

// 16 lanes of doubles, as two halves.
struct Sum16 {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();

  HR_KERNEL_INLINE void Add(__m512 v) {
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(v)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)));
  }
  HR_KERNEL_INLINE double Total() const {
    const __m512d h8 = _mm512_add_pd(low, high);
    const __m256d h4 = _mm256_add_pd(_mm512_castpd512_pd256(h8), _mm512_extractf64x4_pd(h8, 1));
    const __m128d h2 = _mm_add_pd(_mm256_castpd256_pd128(h4), _mm256_extractf128_pd(h4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h2, _mm_unpackhi_pd(h2, h2)));
  }
};

// A block's vectors; what lies behind the end of the last one is not read and has no bit in `valid`. Whole blocks have
// constant masks.
template <bool kWhole>
struct Block {
  __m512 v[kVectors];
  __mmask16 valid[kVectors];

  HR_KERNEL_INLINE Block(const float* x, int64_t n) {
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      valid[i] = kWhole ? static_cast<__mmask16>(0xFFFF) : Mask(n - 16 * i);
      v[i] = kWhole ? _mm512_loadu_ps(x + 16 * i) : _mm512_maskz_loadu_ps(valid[i], x + 16 * i);
    }
  }
};

template <bool kWhole>
HR_KERNEL_INLINE float OneMax(const float* x, int64_t n) {
  const Block<kWhole> b(x, n);
  __m512 top = _mm512_set1_ps(-__builtin_inff());
  // max_ps gives its second operand for a NaN.
  HR_UNROLL for (int i = 0; i < kVectors; ++i) top = _mm512_mask_max_ps(top, b.valid[i], b.v[i], top);
  return _mm512_reduce_max_ps(top);
}

void BlockMax(const float* x, int64_t n, float* maxima) {
  int64_t first = 0;
  for (; first + kSampleBlock <= n; first += kSampleBlock) *maxima++ = OneMax<true>(x + first, kSampleBlock);
  if (first < n) *maxima = OneMax<false>(x + first, n - first);
}

struct ExpOp {
  __m512 max, factor, least;
};

template <bool kWhole>
HR_KERNEL_INLINE double OneExp(const float* x, int64_t n, const ExpOp& op, float* out) {
  const Block<kWhole> b(x, n);
  Sum16 sum;
  HR_UNROLL for (int i = 0; i < kVectors; ++i) {
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(b.valid[i], b.v[i], op.least, _CMP_GE_OQ);
    const __m512 p = _mm512_maskz_mov_ps(kept, Exp16(_mm512_mul_ps(_mm512_sub_ps(b.v[i], op.max), op.factor)));
    _mm512_mask_storeu_ps(out + 16 * i, b.valid[i], p);
    sum.Add(p);
  }
  return sum.Total();
}

void ExpBlocks(const float* x, int64_t n, float max, float inverse_temperature, float least, float* out, double* sums) {
  const ExpOp op{_mm512_set1_ps(max), _mm512_set1_ps(inverse_temperature), _mm512_set1_ps(least)};
  int64_t first = 0;
  for (; first + kSampleBlock <= n; first += kSampleBlock) {
    *sums++ = OneExp<true>(x + first, kSampleBlock, op, out + first);
  }
  if (first < n) *sums = OneExp<false>(x + first, n - first, op, out + first);
}

template <bool kWhole>
HR_KERNEL_INLINE int64_t OneTally(const float* v, int64_t n, __m512 least, double* total) {
  const Block<kWhole> b(v, n);
  Sum16 sum;
  uint64_t kept = 0;
  HR_UNROLL for (int i = 0; i < kVectors; ++i) {
    const __mmask16 mask = _mm512_mask_cmp_ps_mask(b.valid[i], b.v[i], least, _CMP_GE_OQ);
    kept = kept << 16 | mask;
    if (total != nullptr) sum.Add(_mm512_maskz_mov_ps(mask, b.v[i]));
  }
  if (total != nullptr) *total = sum.Total();
  return __builtin_popcountll(kept);
}

int64_t Tally(const float* v, const float* maxima, int64_t n, float least, double* sums) {
  const __m512 low = _mm512_set1_ps(least);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t block = first / kSampleBlock;
    double* sum = sums != nullptr ? sums + block : nullptr;
    if (maxima[block] < least) {
      if (sum != nullptr) *sum = 0;
    } else if (first + kSampleBlock <= n) {
      count += sum != nullptr ? OneTally<true>(v + first, kSampleBlock, low, sum)
                              : OneTally<true>(v + first, kSampleBlock, low, nullptr);
    } else {
      count += OneTally<false>(v + first, n - first, low, sum);
    }
  }
  return count;
}

template <bool kWhole>
HR_KERNEL_INLINE int64_t OneCollect(const float* v, int64_t n, __m512 low, __m512 high, int32_t first_id, float* values,
                                    int32_t* ids) {
  const Block<kWhole> b(v, n);
  const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  int64_t count = 0;
  HR_UNROLL for (int i = 0; i < kVectors; ++i) {
    const __mmask16 above = _mm512_mask_cmp_ps_mask(b.valid[i], b.v[i], low, _CMP_GE_OQ);
    const __mmask16 kept = _mm512_mask_cmp_ps_mask(above, b.v[i], high, _CMP_LT_OQ);
    if (kept == 0) continue;
    const int found = __builtin_popcount(kept);
    const __m512i id = _mm512_add_epi32(_mm512_set1_epi32(first_id + 16 * i), step);
    _mm512_mask_storeu_ps(values + count, Mask(found), _mm512_maskz_compress_ps(kept, b.v[i]));
    _mm512_mask_storeu_epi32(ids + count, Mask(found), _mm512_maskz_compress_epi32(kept, id));
    count += found;
  }
  return count;
}

int64_t Collect(const float* v, const float* maxima, int64_t n, float low, float high, int32_t first_id, float* values,
                int32_t* ids) {
  const __m512 from = _mm512_set1_ps(low), to = _mm512_set1_ps(high);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    if (maxima[first / kSampleBlock] < low) continue;
    const int32_t id = first_id + static_cast<int32_t>(first);
    count += first + kSampleBlock <= n
                 ? OneCollect<true>(v + first, kSampleBlock, from, to, id, values + count, ids + count)
                 : OneCollect<false>(v + first, n - first, from, to, id, values + count, ids + count);
  }
  return count;
}

}  // namespace

const SamplingKernels kAvx512Sampling{BlockMax, ExpBlocks, Tally, Collect};

}  // namespace headrace
