#include "kernels/avx512/floats.h"

#include "kernels/avx512/tiles.h"

namespace headrace {
namespace {

// E4m3ToFloat: as halves the exponents are 8 too low.
HR_KERNEL_INLINE __m512 LoadE4m3(const std::byte* p) {
  const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7F));
  const __m256i sign = _mm256_and_si256(bytes, _mm256_set1_epi16(static_cast<int16_t>(0x8000)));
  const __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7F));
  const __m512 value = _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0f));
  return _mm512_mask_mov_ps(value, nan, _mm512_castsi512_ps(_mm512_set1_epi32(0x7FC00000)));
}

// 16 rows of one column.
template <DType kType>
HR_KERNEL_INLINE __m512 LoadColumn(const std::byte* p) {
  if constexpr (kType == DType::kF32) {
    return _mm512_loadu_ps(p);
  } else if constexpr (kType == DType::kF16) {
    return LoadHalves(reinterpret_cast<const uint16_t*>(p));
  } else if constexpr (kType == DType::kBF16) {
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
  } else if constexpr (kType == DType::kF8E5M2) {
    const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm512_cvtph_ps(_mm256_slli_epi16(bytes, 8));
  } else {
    return LoadE4m3(p);
  }
}

// P panels times N rows from `row`: P * N chains hide the latency of the multiply-add.
template <DType kType, int P, int N>
void FloatTile(const MatMul& op, int64_t panel, int64_t row) {
  constexpr int kColumnBytes = kPanelRows * FloatBytes(kType);
  const Activations& a = op.activations;
  const float* x = a.values + row * a.value_stride;
  const std::byte* w[P];
  HR_UNROLL for (int p = 0; p < P; ++p) w[p] = op.weights.data + (panel + p) * op.weights.panel_bytes;
  __m512 acc[P][N];
  HR_UNROLL for (int p = 0; p < P; ++p) { HR_UNROLL for (int n = 0; n < N; ++n) acc[p][n] = _mm512_setzero_ps(); }
  for (int64_t k = 0; k < a.columns; ++k) {
    HR_UNROLL for (int p = 0; p < P; ++p) {
      const std::byte* at = w[p] + k * kColumnBytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
      const __m512 weights = LoadColumn<kType>(at);
      HR_UNROLL for (int n = 0; n < N; ++n) acc[p][n] =
          _mm512_fmadd_ps(weights, _mm512_set1_ps(x[n * a.value_stride + k]), acc[p][n]);
    }
  }
  HR_UNROLL for (int p = 0; p < P; ++p) {
    HR_UNROLL for (int n = 0; n < N; ++n) StorePanel(op, row + n, panel + p, acc[p][n]);
  }
}

using TileFn = void (*)(const MatMul&, int64_t, int64_t);
template <DType T>
TileFn TileOf(int width) {
  static constexpr TileFn kTiles[kTileColumns] = {FloatTile<T, 1, 1>,  FloatTile<T, 1, 2>,  FloatTile<T, 1, 3>,
                                                  FloatTile<T, 1, 4>,  FloatTile<T, 1, 5>,  FloatTile<T, 1, 6>,
                                                  FloatTile<T, 1, 7>,  FloatTile<T, 1, 8>,  FloatTile<T, 1, 9>,
                                                  FloatTile<T, 1, 10>, FloatTile<T, 1, 11>, FloatTile<T, 1, 12>};
  return kTiles[width - 1];
}

// As many panels at once as few rows leave registers and chains for.
template <DType kType>
int64_t WidePanels(const MatMul& op, int64_t panel, int64_t panel_end) {
  const int64_t rows = op.activations.rows;
  if (rows == 1) {
    for (; panel + 4 <= panel_end; panel += 4) FloatTile<kType, 4, 1>(op, panel, 0);
  } else if (rows == 2) {
    for (; panel + 4 <= panel_end; panel += 4) FloatTile<kType, 4, 2>(op, panel, 0);
  } else if (rows == 3) {
    for (; panel + 2 <= panel_end; panel += 2) FloatTile<kType, 2, 3>(op, panel, 0);
  } else if (rows == 4) {
    for (; panel + 2 <= panel_end; panel += 2) FloatTile<kType, 2, 4>(op, panel, 0);
  }
  return panel;
}

}  // namespace

void Avx512FloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFloatType(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
    for (int64_t p = WidePanels<kType>(op, panel_begin, panel_end); p < panel_end; ++p) {
      for (int64_t t = 0; t < op.activations.tiles(); ++t) {
        TileOf<kType>(op.activations.TileWidth(t))(op, p, t * kTileColumns);
      }
    }
  });
}

}  // namespace headrace
