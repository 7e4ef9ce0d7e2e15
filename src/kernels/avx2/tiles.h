// Tiles of the AVX2 matrix product: half a panel, N activation rows, in the operations of matmul.h. All is in an
// unnamed namespace: the other instruction sets have the same names.
#pragma once

#if defined(__AVXVNNI__)
#include "kernels/avxvnni/dots.h"
#else
#include "kernels/avx2/dots.h"
#endif
#include "kernels/matmul.h"

namespace headrace {
namespace {

// acc[n] += group g of half a panel times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddGroup(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256* acc) {
  __m256 dot[N];
  GroupDots<Weights, N>(w, g, x, at, dot);
  const __m256 scale = w.Scale(g);
  if constexpr (Weights::kKind == GroupKind::kMin) {
    const __m256 min = w.Min(g);
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum[at + n]), acc[n]);
  }
  if constexpr (Weights::kKind == GroupKind::kFactorsAndMins) {
    const __m256 min = w.Min(g);
    const __m256i pair = w.MinPair(g);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256i mins = _mm256_madd_epi16(pair, _mm256_set1_epi32(x.sum[at + n]));
      const __m256 factor = _mm256_mul_ps(min, _mm256_set1_ps(x.scale[at + n]));
      acc[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(mins), factor, acc[n]);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale[at + n]));
    acc[n] = _mm256_fmadd_ps(dot[n], factor, acc[n]);
  }
}

// Adds the second planes of groups [first, first + count) of one chunk of rows, entry by entry; group `first` is the
// weights' group 0.
template <typename Weights>
HR_KERNEL_INLINE void AddRestGroups(const Weights& w, const Activations& a, int64_t chunk, int64_t first, int64_t count,
                                    float (*rest)[kPanelRows]) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1) + first;
  for (int64_t g = 0; g < count; ++g) {
    for (int64_t e = starts[g]; e < starts[g + 1]; ++e) {
      const Entries x{a.rest_quants + e * kGroup, a.rest_scale + e, a.rest_scaled_sum + e, a.rest_sum + e};
      float* sum = rest[a.rest_row[e] - chunk * kWideChunkRows] + 8 * w.half;
      __m256 acc[1] = {_mm256_load_ps(sum)};
      AddGroup<Weights, 1>(w, g, x, 0, acc);
      _mm256_store_ps(sum, acc[0]);
    }
  }
}

HR_KERNEL_INLINE bool HasRest(const Activations& a, int64_t chunk) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1);
  return starts[0] != starts[a.groups()];
}

// Eight output rows from `row` of the panels.
HR_KERNEL_INLINE void StoreHalf(const MatMul& op, int64_t m, int64_t row, __m256 acc) {
  const __m256i mask = LaneMask(op.weights.rows - row);
  float* out = op.out + m * op.out_stride + row;
  if (op.accumulate) acc = _mm256_add_ps(_mm256_maskload_ps(out, mask), acc);
  _mm256_maskstore_ps(out, mask, acc);
}

// Adds the rest to what the tiles of this panel have stored for a chunk of rows.
HR_KERNEL_INLINE void StoreRest(const MatMul& op, int64_t panel, int64_t chunk, const float (*rest)[kPanelRows]) {
  const Activations& a = op.activations;
  const int64_t first = chunk * kWideChunkRows, end = first + kWideChunkRows < a.rows ? first + kWideChunkRows : a.rows;
  for (int64_t m = first; m < end; ++m) {
    if (a.row_is_wide[m] == 0) continue;
    for (int half = 0; half < 2; ++half) {
      const int64_t row = panel * kPanelRows + 8 * half;
      const __m256i mask = LaneMask(op.weights.rows - row);
      float* out = op.out + m * op.out_stride + row;
      const __m256 more = _mm256_load_ps(rest[m - first] + 8 * half);
      _mm256_maskstore_ps(out, mask, _mm256_add_ps(_mm256_maskload_ps(out, mask), more));
    }
  }
}

}  // namespace
}  // namespace headrace
