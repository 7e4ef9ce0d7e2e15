// Tiles of the matrix product, in the operations of matmul.h: half a panel (eight rows), N activation rows, for
// instruction sets whose vectors hold no whole panel. Over a class L of an ISA file's anonymous namespace, so that each
// instance is local to that file (matmul_panels.h has the rest of it):
//   F: eight floats;  Zero, Set, Load, Store, Add, Mul, Fma;  LoadFirst(p, n), StoreFirst(p, n, x): min(n, 8) lanes
//   GroupDots<Weights, N>(w, g, x, at, F* dot): a group's integers, factors applied, times entry `at` + n, as floats
//   PairDot(pair, sums): two integers of each row times the two of PackHalfSums, as floats
// Weights is a class that reads groups: L, kKind, Scale(g), Min(g), MinPair(g), half.
#pragma once

#include "kernels/formats.h"
#include "kernels/matmul.h"

namespace headrace {

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

constexpr bool HasMin(GroupKind kind) { return kind == GroupKind::kMin || kind == GroupKind::kFactorsAndMins; }
constexpr bool HasFactors(GroupKind kind) { return kind == GroupKind::kFactors || kind == GroupKind::kFactorsAndMins; }

// acc[n] += group g of half a panel times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddGroup(const Weights& w, int64_t g, const Entries& x, int64_t at, typename Weights::L::F* acc) {
  using L = typename Weights::L;
  typename L::F dot[N];
  L::template GroupDots<Weights, N>(w, g, x, at, dot);
  const auto scale = w.Scale(g);
  if constexpr (Weights::kKind == GroupKind::kMin) {
    const auto min = w.Min(g);
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = L::Fma(min, L::Set(x.scaled_sum[at + n]), acc[n]);
  }
  if constexpr (Weights::kKind == GroupKind::kFactorsAndMins) {
    const auto min = w.Min(g);
    const auto pair = w.MinPair(g);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      acc[n] = L::Fma(L::PairDot(pair, x.sum[at + n]), L::Mul(min, L::Set(x.scale[at + n])), acc[n]);
    }
  }
  HR_UNROLL for (int n = 0; n < N; ++n) { acc[n] = L::Fma(dot[n], L::Mul(scale, L::Set(x.scale[at + n])), acc[n]); }
}

// Adds the second planes of groups [first, first + count) of one chunk of rows, entry by entry; group `first` is the
// weights' group 0.
template <typename Weights>
HR_KERNEL_INLINE void AddRestGroups(const Weights& w, const Activations& a, int64_t chunk, int64_t first, int64_t count,
                                    float (*rest)[kPanelRows]) {
  using L = typename Weights::L;
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1) + first;
  for (int64_t g = 0; g < count; ++g) {
    for (int64_t e = starts[g]; e < starts[g + 1]; ++e) {
      const Entries x{a.rest_quants + e * kGroup, a.rest_scale + e, a.rest_scaled_sum + e, a.rest_sum + e};
      float* sum = rest[a.rest_row[e]] + 8 * w.half;
      typename L::F acc[1] = {L::Load(sum)};
      AddGroup<Weights, 1>(w, g, x, 0, acc);
      L::Store(sum, acc[0]);
    }
  }
}

HR_KERNEL_INLINE bool HasRest(const Activations& a, int64_t chunk) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1);
  return starts[0] != starts[a.groups()];
}

// Eight output rows from `row` of the panels.
template <typename L>
HR_KERNEL_INLINE void StoreHalf(const MatMul& op, int64_t m, int64_t row, typename L::F acc) {
  const int64_t count = op.weights.rows - row;
  float* out = op.out + m * op.out_stride + row;
  if (op.accumulate) acc = L::Add(L::LoadFirst(out, count), acc);
  L::StoreFirst(out, count, acc);
}

// Adds the rest to what the tiles of this panel have stored for a chunk of rows.
template <typename L>
HR_KERNEL_INLINE void StoreRest(const MatMul& op, int64_t panel, int64_t chunk, const float (*rest)[kPanelRows]) {
  const Activations& a = op.activations;
  const int64_t first = chunk * kWideChunkRows, end = first + kWideChunkRows < a.rows ? first + kWideChunkRows : a.rows;
  for (int64_t m = first; m < end; ++m) {
    if (a.row_is_wide[m] == 0) continue;
    for (int half = 0; half < 2; ++half) {
      const int64_t row = panel * kPanelRows + 8 * half;
      const int64_t count = op.weights.rows - row;
      float* out = op.out + m * op.out_stride + row;
      L::StoreFirst(out, count, L::Add(L::LoadFirst(out, count), L::Load(rest[m - first] + 8 * half)));
    }
  }
}

}  // namespace headrace
