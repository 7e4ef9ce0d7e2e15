// Tiles of the AVX-512 matrix product: one panel, N activation rows, in the operations of matmul.h. All is in an
// unnamed namespace: the other instruction sets have the same names.
#pragma once

#include "kernels/avx512/formats.h"
#include "kernels/matmul.h"

namespace headrace {
namespace {

// Entries of activations: (group, row) pairs, for which quants are [entry][32].
struct Entries {
  const int8_t* quants;
  const float* scale;
  const float* scaled_sum;
  const int32_t* sum;
};
HR_KERNEL_INLINE Entries EntriesAt(const Activations& a, int64_t at) {
  return {a.quants + at * kGroup, a.scale + at, a.scaled_sum + at, a.sum + at};
}
// Entries from `at` on, each address in a register of its own where there are several: one is 1.5 % slower with that.
template <int N>
HR_KERNEL_INLINE Entries EntriesFrom(const Entries& x, int64_t at) {
  const Entries from{x.quants + at * kGroup, x.scale + at, x.scaled_sum + at, x.sum + at};
  if constexpr (N == 1) return from;
  return {InRegister(from.quants), InRegister(from.scale), InRegister(from.scaled_sum), InRegister(from.sum)};
}

// acc[n] += group g of a panel times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddPlain(const Weights& w, int64_t g, const Entries& x, int64_t at, __m512* acc) {
  // A single row has two chains, to hide the latency of the dot product.
  constexpr int kChains = N == 1 ? 2 : 1;
  const int8_t* q = x.quants + at * kGroup;
  __m512i dot[kChains][N];
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int c = 0; c < kChains; ++c) dot[c][n] = _mm512_setzero_si512();
    if constexpr (Weights::kHasOffset)
      dot[0][n] = _mm512_dpwssd_epi32(dot[0][n], w.Offset(), _mm512_set1_epi32(x.sum[at + n]));
  }
  HR_UNROLL for (int i = 0; i < 8; ++i) {
    const int line = i % 2 * 4 + i / 2;  // nibbles of one line together
    const __m512i codes = w.Line(g, line);
    HR_UNROLL for (int n = 0; n < N; ++n) dot[i % kChains][n] =
        _mm512_dpbusd_epi32(dot[i % kChains][n], codes, Splat4(q + n * kGroup + line * 4));
  }
  const __m512 scale = w.Scale(g);
  if constexpr (HasMin(Weights::kKind)) {
    const __m512 min = w.Min(g);
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.scaled_sum[at + n]), acc[n]);
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    if constexpr (kChains == 2) dot[0][n] = _mm512_add_epi32(dot[0][n], dot[1][n]);
    acc[n] =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[0][n]), _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[at + n])), acc[n]);
  }
}

// The same for groups with factors. The integer sum dot * factor + dot * factor is taken in floats, where it is exact:
// it is at most 2 * 16 * 32 * 127 * 128 < 2^24.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddFactors(const Weights& w, int64_t g, const Entries& x, int64_t at, __m512* acc) {
  const int8_t* q = x.quants + at * kGroup;
  const __m512i zero = _mm512_setzero_si512();
  __m512 sum[N];
  HR_UNROLL for (int half = 0; half < 2; ++half) {
    __m512i dot[N];
    // The 16 bits of the other half's sum are multiplied by zero.
    const __m512i offset = half == 0 ? _mm512_srli_epi32(w.Offset(), 16) : _mm512_slli_epi32(w.Offset(), 16);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      dot[n] = Weights::kHasOffset ? _mm512_dpwssd_epi32(zero, offset, _mm512_set1_epi32(x.sum[at + n])) : zero;
    }
    HR_UNROLL for (int line = half * 4; line < half * 4 + 4; ++line) {
      const __m512i codes = w.Line(g, line);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
          _mm512_dpbusd_epi32(dot[n], codes, Splat4(q + n * kGroup + line * 4));
    }
    const __m512 factor = w.Factor(g, half);
    HR_UNROLL for (int n = 0; n < N; ++n) sum[n] =
        _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[n]), factor, half == 0 ? _mm512_setzero_ps() : sum[n]);
  }
  if constexpr (HasMin(Weights::kKind)) {
    const __m512 min = w.Min(g);
    const __m512i pair = w.MinPair(g);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m512i mins = _mm512_dpwssd_epi32(zero, pair, _mm512_set1_epi32(x.sum[at + n]));
      acc[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(mins), _mm512_mul_ps(min, _mm512_set1_ps(x.scale[at + n])), acc[n]);
    }
  }
  const __m512 scale = w.Scale(g);
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] =
      _mm512_fmadd_ps(sum[n], _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[at + n])), acc[n]);
}

template <typename Weights, int N>
HR_KERNEL_INLINE void AddGroup(const Weights& w, int64_t g, const Entries& x, int64_t at, __m512* acc) {
  const Entries entries = EntriesFrom<N>(x, at);
  if constexpr (HasFactors(Weights::kKind)) {
    AddFactors<Weights, N>(w, g, entries, 0, acc);
  } else {
    AddPlain<Weights, N>(w, g, entries, 0, acc);
  }
}

// acc += groups [0, groups) of a panel times a tile of N rows. The weights are prefetched by the first tile of a panel
// only, the others find them in the cache.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddTile(const Weights& w, int64_t groups, const Entries& x, bool prefetch, __m512* acc) {
  for (int64_t g = 0; g < groups; ++g) {
    if (prefetch) w.Prefetch(g);
    AddGroup<Weights, N>(w, g, x, g * N, acc);
  }
}

// Two panels at once for a single row: four independent chains.
template <typename Weights>
HR_KERNEL_INLINE void AddPair(const Weights& a, const Weights& b, int64_t groups, const Entries& x, __m512* acc) {
  for (int64_t g = 0; g < groups; ++g) {
    a.Prefetch(g);
    b.Prefetch(g);
    AddGroup<Weights, 1>(a, g, x, g, acc);
    AddGroup<Weights, 1>(b, g, x, g, acc + 1);
  }
}

// N entries of second planes from `at`, each added to its row's sum.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddRestEntries(const Weights& held, const Activations& a, int64_t at, float (*rest)[kPanelRows]) {
  const Entries x{a.rest_quants + at * kGroup, a.rest_scale + at, a.rest_scaled_sum + at, a.rest_sum + at};
  __m512 acc[N];
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_load_ps(rest[a.rest_row[at + n]]);
  AddGroup<Weights, N>(held, 0, x, 0, acc);
  HR_UNROLL for (int n = 0; n < N; ++n) _mm512_store_ps(rest[a.rest_row[at + n]], acc[n]);
}

// Adds the second planes of groups [first, first + count) of one chunk of rows; group `first` is the weights' group 0.
// Four entries at a time: their chains hide the latency of the dot product.
template <typename Weights>
HR_KERNEL_INLINE void AddRestGroups(const Weights& w, const Activations& a, int64_t chunk, int64_t first, int64_t count,
                                    float (*rest)[kPanelRows]) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1) + first;
  for (int64_t g = 0; g < count; ++g) {
    const int64_t end = starts[g + 1];
    int64_t e = starts[g];
    if (e == end) continue;
    const HeldGroup<Weights> held(w, g);
    for (; e + 4 <= end; e += 4) AddRestEntries<HeldGroup<Weights>, 4>(held, a, e, rest);
    for (; e < end; ++e) AddRestEntries<HeldGroup<Weights>, 1>(held, a, e, rest);
  }
}

HR_KERNEL_INLINE bool HasRest(const Activations& a, int64_t chunk) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1);
  return starts[0] != starts[a.groups()];
}

HR_KERNEL_INLINE void StorePanel(const MatMul& op, int64_t m, int64_t panel, __m512 acc) {
  const int64_t row = panel * kPanelRows;
  const __mmask16 mask = Mask(op.weights.rows - row);
  float* out = op.out + m * op.out_stride + row;
  if (op.accumulate) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), acc);
  _mm512_mask_storeu_ps(out, mask, acc);
}

// Adds the rest to what the tiles of this panel have stored for a chunk of rows.
HR_KERNEL_INLINE void StoreRest(const MatMul& op, int64_t panel, int64_t chunk, const float (*rest)[kPanelRows]) {
  const Activations& a = op.activations;
  const int64_t first = chunk * kWideChunkRows, end = first + kWideChunkRows < a.rows ? first + kWideChunkRows : a.rows;
  const __mmask16 mask = Mask(op.weights.rows - panel * kPanelRows);
  for (int64_t m = first; m < end; ++m) {
    if (a.row_is_wide[m] == 0) continue;
    float* out = op.out + m * op.out_stride + panel * kPanelRows;
    _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), _mm512_load_ps(rest[m - first])));
  }
}

}  // namespace
}  // namespace headrace
