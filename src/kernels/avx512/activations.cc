// Activations to int8 on AVX-512: sixteen groups at a time, so that their maxima, scales and sums are vectors too.
#include "kernels/avx512/activations.h"

#include <immintrin.h>

#include "kernels/avx512/lanes.h"

namespace headrace {
namespace {

constexpr int kGroups = 16;  // of one pass
constexpr int kFew = 4;      // of a pass over the last ones, as of 576 columns: sixteen vectors need not be reduced

struct LargerOf {
  HR_KERNEL_INLINE __m512 operator()(__m512 a, __m512 b) const { return _mm512_max_ps(a, b); }
};
// Lanes hold two 16-bit integers each.
struct SumOf {
  HR_KERNEL_INLINE __m512 operator()(__m512 a, __m512 b) const {
    return _mm512_castsi512_ps(_mm512_add_epi16(_mm512_castps_si512(a), _mm512_castps_si512(b)));
  }
};

// Groups [first, first + n) of a row, n <= kMost; their largest magnitudes go to `largest`.
template <int kMost>
HR_KERNEL_INLINE void QuantizeGroups(const Activations& a, int64_t row, int64_t first, int n, float* largest) {
  const float* x = a.values + row * a.value_stride + first * kGroup;
  __m512 joined[kGroups];
  HR_UNROLL for (int i = 0; i < kGroups; ++i) {
    joined[i] = _mm512_setzero_ps();
    if (i < kMost && i < n)
      joined[i] = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i * kGroup)),
                                _mm512_abs_ps(_mm512_loadu_ps(x + i * kGroup + 16)));
  }
  const __m512 top = ReduceEach(joined, LargerOf{}), most = _mm512_set1_ps(127.0f);
  _mm512_storeu_ps(largest, top);
  float inverse[kGroups], scale[kGroups], scaled_sum[kGroups];
  const __mmask16 positive = _mm512_cmp_ps_mask(top, _mm512_setzero_ps(), _CMP_GT_OQ);
  _mm512_storeu_ps(inverse, _mm512_maskz_div_ps(positive, most, top));
  const __m512 scales = _mm512_div_ps(top, most);
  _mm512_storeu_ps(scale, scales);
  HR_UNROLL for (int i = 0; i < kGroups; ++i) {
    joined[i] = _mm512_setzero_ps();
    if (i >= kMost || i >= n) continue;
    const __m512 by = _mm512_set1_ps(inverse[i]);
    const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i * kGroup), by));
    const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i * kGroup + 16), by));
    auto* out = reinterpret_cast<__m128i*>(a.quants + a.GroupIndex(row, first + i) * kGroup);
    _mm_storeu_si128(out, _mm512_cvtepi32_epi8(q0));
    _mm_storeu_si128(out + 1, _mm512_cvtepi32_epi8(q1));
    joined[i] = _mm512_castsi512_ps(_mm512_mask_blend_epi16(0xAAAAAAAA, q0, _mm512_slli_epi32(q1, 16)));
  }
  int32_t sum[kGroups];
  const __m512i sums = _mm512_castps_si512(ReduceEach(joined, SumOf{}));
  _mm512_storeu_si512(sum, sums);
  _mm512_storeu_ps(scaled_sum,
                   _mm512_mul_ps(scales, _mm512_cvtepi32_ps(_mm512_madd_epi16(sums, _mm512_set1_epi16(1)))));
  // Single stores are faster than the scatter that the compiler would make of them.
  _Pragma("clang loop vectorize(disable)") for (int i = 0; i < n; ++i) {
    const int64_t at = a.GroupIndex(row, first + i);
    a.scale[at] = scale[i];
    a.sum[at] = sum[i];
    a.scaled_sum[at] = scaled_sum[i];
  }
}

}  // namespace

void Avx512QuantizeRow(const Activations& a, int64_t row) {
  float largest[kGroupsMax + kGroups];
  __m512 squares = _mm512_setzero_ps();
  const int64_t groups = a.groups();
  for (int64_t g = 0; g < groups; g += kGroups) {
    const int64_t left = groups - g;
    if (left >= kGroups) {
      QuantizeGroups<kGroups>(a, row, g, kGroups, largest + g);
    } else if (left > kFew) {
      QuantizeGroups<kGroups>(a, row, g, static_cast<int>(left), largest + g);
    } else {
      QuantizeGroups<kFew>(a, row, g, static_cast<int>(left), largest + g);
    }
    const __m512 top = _mm512_loadu_ps(largest + g);
    squares = _mm512_add_ps(squares, _mm512_mul_ps(top, top));
  }
  const __m512 threshold = _mm512_set1_ps(a.wide_ratio * Tree(squares) / static_cast<float>(groups));
  for (int64_t g = 0; g < groups; g += kGroups) {
    const __m512 top = _mm512_loadu_ps(largest + g);
    const __mmask16 wide = _mm512_cmp_ps_mask(_mm512_mul_ps(top, top), threshold, _CMP_GT_OQ);
    _mm_mask_storeu_epi8(a.wide + row * groups + g, Mask(groups - g), _mm_maskz_set1_epi8(wide, 1));
  }
}

// What the first plane leaves over, x - scale * q, in steps of scale / 254.
void Avx512QuantizeRest(const Activations& a, int64_t row, int64_t group, int64_t entry) {
  const float* x = a.values + row * a.value_stride + group * kGroup;
  const int64_t at = a.GroupIndex(row, group);
  const __m512 values[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(values[0]), _mm512_abs_ps(values[1])));
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const __m512 step = _mm512_set1_ps(inverse * 254.0f), scale = _mm512_set1_ps(a.scale[at]),
               most = _mm512_set1_ps(127.0f);
  __m512i rest[2];
  HR_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512i q =
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a.quants + at * kGroup + 16 * i)));
    const __m512 left = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(q), scale, values[i]);
    const __m512 steps = _mm512_roundscale_ps(_mm512_mul_ps(left, step), 0);
    rest[i] = _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(steps, most), _mm512_sub_ps(_mm512_setzero_ps(), most)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(a.rest_quants + entry * kGroup + 16 * i),
                     _mm512_cvtepi32_epi8(rest[i]));
  }
  const int32_t first = _mm512_reduce_add_epi32(rest[0]), second = _mm512_reduce_add_epi32(rest[1]);
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = PackHalfSums(first, second);
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(first + second);
}

}  // namespace headrace
