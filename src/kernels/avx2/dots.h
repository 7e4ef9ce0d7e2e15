// Integer dots of a group of 32 columns on AVX2, by 16-bit sums of pairs. All is in an unnamed namespace: the other
// instruction sets have the same names.
#pragma once

#include "kernels/avx2/formats.h"

namespace headrace {
namespace {

// run[n] = sums of two products over `count` lines of the group.
template <typename Weights, int N>
HR_KERNEL_INLINE void DotRun(const Weights& w, int64_t g, const int8_t* q, const int* lines, int count, __m256i* run) {
  HR_UNROLL for (int i = 0; i < count; ++i) {
    const __m256i codes = w.Line(g, lines[i]);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256i products = _mm256_maddubs_epi16(codes, Splat4(q + n * kGroup + lines[i] * 4));
      run[n] = i == 0 ? products : _mm256_add_epi16(run[n], products);
    }
  }
}

// The integer dots of kPlain and kMin.
template <typename Weights, int N>
HR_KERNEL_INLINE void PlainDots(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256i* dot) {
  const int8_t* q = x.quants + at * kGroup;
  const __m256i ones = _mm256_set1_epi16(1);
  HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_setzero_si256();
  if constexpr (Weights::kSigned) {
    HR_UNROLL for (int line = 0; line < 8; ++line) {
      // |w| as unsigned (128 at most) times x with w's sign: 2 x 128 x 127 = 32,512 fits 16 bits.
      const __m256i weights = w.Line(g, line), magnitude = _mm256_abs_epi8(weights);
      HR_UNROLL for (int n = 0; n < N; ++n) {
        const __m256i signed_x = _mm256_sign_epi8(Splat4(q + n * kGroup + line * 4), weights);
        dot[n] = _mm256_add_epi32(dot[n], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), ones));
      }
    }
  } else {
    constexpr int kLines[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    HR_UNROLL for (int i = 0; i < 8; i += Weights::kRun) {
      __m256i run[N];
      DotRun<Weights, N>(w, g, q, kLines + i, Weights::kRun, run);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_add_epi32(dot[n], _mm256_madd_epi16(run[n], ones));
    }
    if (w.Offset() != 0) {
      const __m256i offset = _mm256_set1_epi16(static_cast<int16_t>(w.Offset()));
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
          _mm256_sub_epi32(dot[n], _mm256_madd_epi16(_mm256_set1_epi32(x.sum[at + n]), offset));
    }
  }
}

// dot * factor + dot * factor of the kinds with factors.
template <typename Weights, int N>
HR_KERNEL_INLINE void FactorDots(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256i* dot) {
  constexpr int kLines[8] = {0, 1, 2, 3, 4, 5, 6, 7}, kRun = Weights::kRun < 4 ? Weights::kRun : 4;
  const int8_t* q = x.quants + at * kGroup;
  const __m256i pair = w.FactorPair(g);
  if constexpr (Weights::kKind == GroupKind::kFactors) {
    // Offsets are powers of two.
    const __m128i shift = _mm_cvtsi32_si128(__builtin_ctz(static_cast<unsigned>(w.Offset())));
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256i sums = _mm256_madd_epi16(pair, _mm256_set1_epi32(x.sum[at + n]));
      dot[n] = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_sll_epi32(sums, shift));
    }
  } else {
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_setzero_si256();
  }
  HR_UNROLL for (int half = 0; half < 2; ++half) {
    const __m256i low = half == 0 ? pair : _mm256_srli_epi32(pair, 16);
    const __m256i factor = PairOf(low, low);
    HR_UNROLL for (int i = half * 4; i < half * 4 + 4; i += kRun) {
      __m256i run[N];
      DotRun<Weights, N>(w, g, q, kLines + i, kRun, run);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_add_epi32(dot[n], _mm256_madd_epi16(run[n], factor));
    }
  }
}

// dot[n] = the group's integer, factors applied, times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void GroupDots(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256* dot) {
  __m256i whole[N];
  if constexpr (HasFactors(Weights::kKind)) {
    FactorDots<Weights, N>(w, g, x, at, whole);
  } else {
    PlainDots<Weights, N>(w, g, x, at, whole);
  }
  HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_cvtepi32_ps(whole[n]);
}

}  // namespace
}  // namespace headrace
