// The dot products of AVX-VNNI out of registers. Intrinsics and plain structs only.
#include "kernels/probe.h"

#include <immintrin.h>

#include "kernels/layout.h"

namespace headrace {

int64_t AvxVnniDots(int64_t rounds, int32_t* sink) {
  constexpr int kChains = 12;  // two a cycle with a latency of 5 cycles keep 10 in flight
  const __m256i a = _mm256_set1_epi8(static_cast<char>(rounds)), b = _mm256_set1_epi8(3);
  __m256i sums[kChains];
  HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  for (int64_t r = 0; r < rounds; ++r) {
    HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, b);
  }
  HR_UNROLL for (int i = 1; i < kChains; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  *sink = _mm256_extract_epi32(sums[0], 0);
  return rounds * kChains * 2 * 32;
}

}  // namespace headrace
