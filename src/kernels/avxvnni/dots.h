// Integer dots of a group of 32 columns on AVX-VNNI: codes as they are, the offset taken back by one dot product with
// the activations' sums. All is in an unnamed namespace: the other instruction sets have the same names.
#pragma once

#include "kernels/avx2/formats.h"

namespace headrace {
namespace {

// dot[n] += four columns of the group.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddLine(const Weights& w, int64_t g, const int8_t* q, int line, __m256i* dot) {
  const __m256i codes = w.Line(g, line);
  HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
      _mm256_dpbusd_avx_epi32(dot[n], codes, Splat4(q + n * kGroup + line * 4));
}

// What the codes' offset adds too much, taken from the halves of the group that `places` has a 1 for.
template <typename Weights, int N>
HR_KERNEL_INLINE void StartDots(const Weights& w, const Entries& x, int64_t at, uint32_t places, __m256i* dot) {
  HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_setzero_si256();
  if constexpr (HasMin(Weights::kKind)) return;
  const auto offset = static_cast<uint32_t>(-w.Offset()) & 0xFFFFu;
  const __m256i both = _mm256_set1_epi32(static_cast<int>(offset * places));
  HR_UNROLL for (int n = 0; n < N; ++n) AddDot16(dot[n], both, _mm256_set1_epi32(x.sum[at + n]));
}

// dot[n] = the group's integer, factors applied, times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void GroupDots(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256* dot) {
  const int8_t* q = x.quants + at * kGroup;
  if constexpr (!HasFactors(Weights::kKind)) {
    constexpr int kLines[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // nibbles of one line together
    __m256i whole[N];
    StartDots<Weights, N>(w, x, at, 0x10001u, whole);
    HR_UNROLL for (int i = 0; i < 8; ++i) AddLine<Weights, N>(w, g, q, kLines[i], whole);
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_cvtepi32_ps(whole[n]);
    return;
  }
  // The integer sum of two dots times their factors is taken in floats, where it is exact: it is at most
  // 2 * 16 * 32 * 127 * 128 < 2^24.
  const __m256i pair = w.FactorPair(g);
  HR_UNROLL for (int half = 0; half < 2; ++half) {
    __m256i part[N];
    StartDots<Weights, N>(w, x, at, half == 0 ? 1u : 0x10000u, part);
    HR_UNROLL for (int line = half * 4; line < half * 4 + 4; ++line) AddLine<Weights, N>(w, g, q, line, part);
    const __m256 factor = _mm256_cvtepi32_ps(_mm256_srai_epi32(half == 0 ? _mm256_slli_epi32(pair, 16) : pair, 16));
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256 sum = _mm256_cvtepi32_ps(part[n]);
      dot[n] = half == 0 ? _mm256_mul_ps(sum, factor) : _mm256_fmadd_ps(sum, factor, dot[n]);
    }
  }
}

}  // namespace
}  // namespace headrace
