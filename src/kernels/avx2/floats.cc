#include "kernels/avx2/floats.h"

#include "kernels/avx2/half_panel.h"

namespace headrace {
namespace {

// E4m3ToFloat: as halves the exponents are 8 too low.
HR_KERNEL_INLINE __m256 LoadE4m3(const std::byte* p) {
  const __m128i bytes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i magnitude = _mm_and_si128(bytes, _mm_set1_epi16(0x7F));
  const __m128i sign = _mm_and_si128(bytes, _mm_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 7), sign);
  const __m256i nan = _mm256_cvtepi16_epi32(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7F)));
  const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0f));
  return _mm256_blendv_ps(value, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000)), _mm256_castsi256_ps(nan));
}

// Eight rows of one column.
template <DType kType>
HR_KERNEL_INLINE __m256 LoadColumn(const std::byte* p) {
  if constexpr (kType == DType::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  } else if constexpr (kType == DType::kF16) {
    return LoadHalves(reinterpret_cast<const uint16_t*>(p));
  } else if constexpr (kType == DType::kBF16) {
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
  } else if constexpr (kType == DType::kF8E5M2) {
    const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return _mm256_cvtph_ps(_mm_slli_epi16(bytes, 8));
  } else {
    return LoadE4m3(p);
  }
}

// A whole panel times N rows from `row`: 2 * N chains hide the latency of the multiply-add.
template <DType kType, int N>
void FloatTile(const MatMul& op, int64_t panel, int64_t row) {
  constexpr int kHalfBytes = 8 * FloatBytes(kType);
  const Activations& a = op.activations;
  const float* x = a.values + row * a.value_stride;
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  __m256 acc[2][N];
  HR_UNROLL for (int n = 0; n < N; ++n) acc[0][n] = acc[1][n] = _mm256_setzero_ps();
  for (int64_t k = 0; k < a.columns; ++k, w += 2 * kHalfBytes) {
    _mm_prefetch(reinterpret_cast<const char*>(w + kPrefetchBytes), _MM_HINT_T0);
    const __m256 low = LoadColumn<kType>(w), high = LoadColumn<kType>(w + kHalfBytes);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256 value = _mm256_set1_ps(x[n * a.value_stride + k]);
      acc[0][n] = _mm256_fmadd_ps(low, value, acc[0][n]);
      acc[1][n] = _mm256_fmadd_ps(high, value, acc[1][n]);
    }
  }
  for (int half = 0; half < 2; ++half) {
    HR_UNROLL for (int n = 0; n < N; ++n)
        StoreHalf<HalfPanel>(op, row + n, panel * kPanelRows + 8 * half, acc[half][n]);
  }
}

// One row and four panels: eight chains.
template <DType kType>
void FourPanels(const MatMul& op, int64_t panel) {
  constexpr int kPanels = 4, kHalfBytes = 8 * FloatBytes(kType);
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const int64_t step = op.weights.panel_bytes;
  __m256 acc[kPanels][2];
  HR_UNROLL for (int p = 0; p < kPanels; ++p) acc[p][0] = acc[p][1] = _mm256_setzero_ps();
  for (int64_t k = 0; k < op.activations.columns; ++k, w += 2 * kHalfBytes) {
    const __m256 value = _mm256_set1_ps(op.activations.values[k]);
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      const std::byte* at = w + p * step;
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
      acc[p][0] = _mm256_fmadd_ps(LoadColumn<kType>(at), value, acc[p][0]);
      acc[p][1] = _mm256_fmadd_ps(LoadColumn<kType>(at + kHalfBytes), value, acc[p][1]);
    }
  }
  HR_UNROLL for (int p = 0; p < kPanels; ++p) {
    for (int half = 0; half < 2; ++half) StoreHalf<HalfPanel>(op, 0, (panel + p) * kPanelRows + 8 * half, acc[p][half]);
  }
}

constexpr int kFloatTileRows = 6;  // 12 sums, two columns of weights and a value: 15 of 16 registers

template <DType T>
void RowsOf(const MatMul& op, int64_t panel, int64_t row, int64_t rows) {
  using TileFn = void (*)(const MatMul&, int64_t, int64_t);
  static constexpr TileFn kTiles[kFloatTileRows] = {FloatTile<T, 1>, FloatTile<T, 2>, FloatTile<T, 3>,
                                                    FloatTile<T, 4>, FloatTile<T, 5>, FloatTile<T, 6>};
  kTiles[(rows < kFloatTileRows ? rows : kFloatTileRows) - 1](op, panel, row);
}

}  // namespace

void Avx2FloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFloatType(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
    const int64_t rows = op.activations.rows;
    int64_t p = panel_begin;
    if (rows == 1) {
      for (; p + 4 <= panel_end; p += 4) FourPanels<kType>(op, p);
    }
    for (; p < panel_end; ++p) {
      for (int64_t row = 0; row < rows; row += kFloatTileRows) RowsOf<kType>(op, p, row, rows - row);
    }
  });
}

}  // namespace headrace
