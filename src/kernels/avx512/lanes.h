// Sixteen floats at a time: the canonical arithmetic of canonical.h on AVX-512. For the ISA files that are compiled for
// it; everything is inlined, so that no copy reaches the linker.
#pragma once

#include <immintrin.h>

#include "kernels/canonical.h"

namespace headrace {

// An address in a register of its own. A vector instruction with an operand in memory is issued as one where one
// register is the address, as two where that is a base and an index, which the compiler prefers.
template <typename T>
HR_KERNEL_INLINE T* InRegister(T* address) {
  asm("" : "+r"(address));
  return address;
}

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

// What `op` makes of all 16 lanes of each of 16 vectors: halves meet first, as in TreeSum16, those of two vectors in
// one operation.
template <typename Op>
HR_KERNEL_INLINE __m512 ReduceEach(const __m512* v, Op op) {
  __m512 eights[8], fours[4], pairs[2];
  HR_UNROLL for (int i = 0; i < 8; ++i) {
    const __m512 a = v[2 * i], b = v[2 * i + 1];
    eights[i] = op(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
  }
  HR_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512 a = eights[2 * i], b = eights[2 * i + 1];
    fours[i] = op(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
  }
  HR_UNROLL for (int i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(fours[2 * i]), b = _mm512_castps_pd(fours[2 * i + 1]);
    pairs[i] = op(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  const __m512 all = op(_mm512_shuffle_ps(pairs[0], pairs[1], 0x88), _mm512_shuffle_ps(pairs[0], pairs[1], 0xDD));
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
}

}  // namespace headrace
