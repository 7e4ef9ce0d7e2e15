// Sixteen floats at a time: the canonical arithmetic of canonical.h on AVX-512. For the ISA files that are compiled for
// it; everything is inlined, so that no copy reaches the linker.
#pragma once

#include <immintrin.h>

#include "kernels/canonical.h"

namespace headrace {

HR_KERNEL_INLINE __m512 LoadHalves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

HR_KERNEL_INLINE __m512i Splat4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// The first n lanes, all of them for n >= 16, none for n <= 0.
HR_KERNEL_INLINE __mmask16 Mask(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1);
}

// CanonicalExp of what is at most 88.
HR_KERNEL_INLINE __m512 ExpBelow88(__m512 x) {
  x = _mm512_max_ps(x, _mm512_set1_ps(kExpLow));
  const __m512 magic = _mm512_set1_ps(kRoundMagic), one = _mm512_set1_ps(1.0f);
  const __m512 k = _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), magic), magic);
  __m512 f = _mm512_fmadd_ps(k, _mm512_set1_ps(-kLn2High), x);
  f = _mm512_fmadd_ps(k, _mm512_set1_ps(-kLn2Low), f);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExpC5), f, _mm512_set1_ps(kExpC4));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExpC3));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExpC2));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(kExpC1));
  p = _mm512_fmadd_ps(p, f, one);
  return _mm512_scalef_ps(p, k);
}
HR_KERNEL_INLINE __m512 Exp16(__m512 x) { return ExpBelow88(_mm512_min_ps(x, _mm512_set1_ps(kExpHigh))); }

// CanonicalSilu.
HR_KERNEL_INLINE __m512 Silu16(__m512 x) {
  const __m512 e = Exp16(_mm512_xor_ps(x, _mm512_set1_ps(-0.0f)));
  return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), e));
}

// TreeSum16.
HR_KERNEL_INLINE float Tree(__m512 v) {
  const __m256 h8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}

}  // namespace headrace
