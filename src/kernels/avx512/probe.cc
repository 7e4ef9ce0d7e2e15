// Probes on AVX-512. Intrinsics and plain structs only.
#include "kernels/probe.h"

#include <immintrin.h>

#include "kernels/layout.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 4096;
// Two a cycle with a latency of 5 cycles keep 10 in flight; a few more for an uneven schedule.
constexpr int kChains = 14;

uint64_t Read(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  __m512i sums[4];
  HR_UNROLL for (int i = 0; i < 4; ++i) sums[i] = _mm512_setzero_si512();
  for (const char* end = p + bytes; p < end; p += kProbeReadStep) {
    HR_UNROLL for (int i = 0; i < 4; ++i) {
      _mm_prefetch(p + kPrefetchBytes + 64 * i, _MM_HINT_T0);
      sums[i] = _mm512_xor_si512(sums[i], _mm512_load_si512(p + 64 * i));
    }
  }
  return static_cast<uint64_t>(
      _mm512_reduce_or_epi64(_mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]))));
}

int64_t Dots(int64_t rounds, int32_t* sink) {
  const __m512i a = _mm512_set1_epi8(static_cast<char>(rounds)), b = _mm512_set1_epi8(3);
  __m512i sums[kChains];
  HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  for (int64_t r = 0; r < rounds; ++r) {
    HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i total = _mm512_setzero_si512();
  HR_UNROLL for (int i = 0; i < kChains; ++i) total = _mm512_xor_si512(total, sums[i]);
  *sink = _mm512_reduce_add_epi32(total);
  return rounds * kChains * 2 * 64;
}

}  // namespace

const ProbeKernels kAvx512Probe{Read, Dots, "vpdpbusd, 512 bits"};

}  // namespace headrace
