// Probes on AVX2. Intrinsics and plain structs only.
#include "kernels/probe.h"

#include <immintrin.h>

#include "kernels/layout.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 4096;
constexpr int kChains = 8;

uint64_t Read(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  __m256i sums[8];
  HR_UNROLL for (int i = 0; i < 8; ++i) sums[i] = _mm256_setzero_si256();
  for (const char* end = p + bytes; p < end; p += kProbeReadStep) {
    HR_UNROLL for (int i = 0; i < 4; ++i) _mm_prefetch(p + kPrefetchBytes + 64 * i, _MM_HINT_T0);
    HR_UNROLL for (int i = 0; i < 8; ++i) {
      sums[i] = _mm256_xor_si256(sums[i], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
    }
  }
  HR_UNROLL for (int i = 1; i < 8; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0) ^ _mm256_extract_epi64(sums[0], 1) ^
                               _mm256_extract_epi64(sums[0], 2) ^ _mm256_extract_epi64(sums[0], 3));
}

// As the products of avx2/ do it: 16-bit sums of pairs, widened and added.
int64_t Dots(int64_t rounds, int32_t* sink) {
  const __m256i b = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
  __m256i a = _mm256_set1_epi8(static_cast<char>(rounds & 63));
  __m256i sums[kChains];
  HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  for (int64_t r = 0; r < rounds; ++r) {
    // Opaque to the compiler, which would otherwise take the products out of the loop.
    asm volatile("" : "+x"(a));
    HR_UNROLL for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(a));
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  HR_UNROLL for (int i = 1; i < kChains; ++i) sums[0] = _mm256_xor_si256(sums[0], sums[i]);
  *sink = _mm256_extract_epi32(sums[0], 0);
  return rounds * kChains * 2 * 32;
}

}  // namespace

const ProbeKernels kAvx2Probe{Read, Dots, "vpmaddubsw, 256 bits"};

}  // namespace headrace
