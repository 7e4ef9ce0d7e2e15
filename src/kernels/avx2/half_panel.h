// The class L of matmul_panels.h on AVX2 and AVX-VNNI. In an unnamed namespace: avx2/ and avxvnni/ compile it each for
// its own instructions.
#pragma once

#if defined(__AVXVNNI__)
#include "kernels/avxvnni/dots.h"
#else
#include "kernels/avx2/dots.h"
#endif
#include "kernels/matmul_panels.h"

namespace headrace {
namespace {

struct HalfPanel {
  using F = __m256;
  using Group = UnpackedGroup;
  template <DType kType>
  using Reader = PanelReader<kType>;
  template <GroupKind kKind, int kCodeMax>
  using Unpacked = UnpackedReader<kKind, kCodeMax>;
  // 16 registers: four sums, four dots, four runs, what is shared; with VNNI there are no runs.
  static constexpr int kSubTileRows = kVnni ? 6 : 4;

  HR_KERNEL_INLINE static F Zero() { return _mm256_setzero_ps(); }
  HR_KERNEL_INLINE static F Set(float x) { return _mm256_set1_ps(x); }
  HR_KERNEL_INLINE static F Load(const float* p) { return _mm256_load_ps(p); }
  HR_KERNEL_INLINE static void Store(float* p, F x) { _mm256_store_ps(p, x); }
  HR_KERNEL_INLINE static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  HR_KERNEL_INLINE static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  HR_KERNEL_INLINE static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  HR_KERNEL_INLINE static F LoadFirst(const float* p, int64_t n) { return _mm256_maskload_ps(p, LaneMask(n)); }
  HR_KERNEL_INLINE static void StoreFirst(float* p, int64_t n, F x) { _mm256_maskstore_ps(p, LaneMask(n), x); }
  HR_KERNEL_INLINE static F PairDot(__m256i pair, int32_t sums) {
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pair, _mm256_set1_epi32(sums)));
  }
  HR_KERNEL_INLINE static constexpr bool HasSignedLines(int code_max) { return headrace::HasSignedLines(code_max); }
  template <typename Weights, int N>
  HR_KERNEL_INLINE static void GroupDots(const Weights& w, int64_t g, const Entries& x, int64_t at, F* dot) {
    headrace::GroupDots<Weights, N>(w, g, x, at, dot);
  }
  template <typename Weights>
  HR_KERNEL_INLINE static void Unpack(const Weights& w, int64_t g, Group& to) {
    UnpackHalfGroup(w, g, to);
  }
};

}  // namespace
}  // namespace headrace
