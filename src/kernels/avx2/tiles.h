// Tiles of the AVX2 matrix product: half a panel, N activation rows, in the operations of matmul.h. All is in an
// unnamed namespace: the other instruction sets have the same names.
#pragma once

#include "kernels/avx2/formats.h"
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

// acc[n] += group g of half a panel times entry `at` + n.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddGroup(const Weights& w, int64_t g, const Entries& x, int64_t at, __m256* acc) {
  __m256i dot[N];
  if constexpr (HasFactors(Weights::kKind)) {
    FactorDots<Weights, N>(w, g, x, at, dot);
  } else {
    PlainDots<Weights, N>(w, g, x, at, dot);
  }
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
    acc[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[n]), factor, acc[n]);
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
