// Eight floats at a time: the canonical arithmetic of canonical.h on AVX2. For the ISA files that are compiled for it;
// everything is inlined, so that no copy reaches the linker.
#pragma once

#include <immintrin.h>

#include "kernels/canonical.h"

namespace headrace {

// avxvnni/ compiles the headers of this folder, too.
#if defined(__AVXVNNI__)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

HR_KERNEL_INLINE __m256 LoadHalves(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
HR_KERNEL_INLINE __m256i LoadInts(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
HR_KERNEL_INLINE __m256i Splat4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// acc += a[0] * b[0] + a[1] * b[1] of 16-bit integers.
HR_KERNEL_INLINE void AddDot16(__m256i& acc, __m256i a, __m256i b) {
#if defined(__AVXVNNI__)
  // The intrinsic becomes a multiplication and an addition, for the sake of processors on which those are faster.
  asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b));
#else
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#endif
}

// CanonicalExp of what is at most 88.
HR_KERNEL_INLINE __m256 ExpBelow88(__m256 x) {
  x = _mm256_max_ps(x, _mm256_set1_ps(kExpLow));
  const __m256 magic = _mm256_set1_ps(kRoundMagic), one = _mm256_set1_ps(1.0f);
  const __m256 k = _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), magic), magic);
  __m256 f = _mm256_fmadd_ps(k, _mm256_set1_ps(-kLn2High), x);
  f = _mm256_fmadd_ps(k, _mm256_set1_ps(-kLn2Low), f);
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(kExpC5), f, _mm256_set1_ps(kExpC4));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExpC3));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExpC2));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(kExpC1));
  p = _mm256_fmadd_ps(p, f, one);
  const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvttps_epi32(k), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}

HR_KERNEL_INLINE __m256 Exp8(__m256 x) { return ExpBelow88(_mm256_min_ps(x, _mm256_set1_ps(kExpHigh))); }

// The tree over 16 lanes held as two halves.
HR_KERNEL_INLINE float Tree(__m256 low, __m256 high) {
  const __m256 h8 = _mm256_add_ps(low, high);
  const __m128 h4 = _mm_add_ps(_mm256_castps256_ps128(h8), _mm256_extractf128_ps(h8, 1));
  const __m128 h2 = _mm_add_ps(h4, _mm_movehl_ps(h4, h4));
  return _mm_cvtss_f32(_mm_add_ss(h2, _mm_movehdup_ps(h2)));
}

HR_KERNEL_INLINE float Largest(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// Lanes i < n set.
HR_KERNEL_INLINE __m256i LaneMask(int64_t n) {
  const int count = n >= 8 ? 8 : n <= 0 ? 0 : static_cast<int>(n);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace headrace
