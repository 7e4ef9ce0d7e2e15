#include "kernels/avx512/floats.h"

#include "kernels/avx512/tiles.h"
#include "kernels/float_tiles.h"

namespace headrace {
namespace {

// Value / 256: as a half, the sign above it.
HR_KERNEL_INLINE __m512 LoadE4m3(const std::byte* p) {
  const __m256i bytes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(bytes, 7), _mm256_set1_epi16(static_cast<int16_t>(0xBFFF)));
  return _mm512_cvtph_ps(half);
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

struct Columns {
  using Column = __m512;
  static constexpr int kTileRows = kTileColumns;

  HR_KERNEL_INLINE static constexpr int PanelsAtOnce(int rows) { return rows <= 2 ? 4 : rows <= 4 ? 2 : 1; }
  template <DType kType>
  HR_KERNEL_INLINE static Column Load(const std::byte* p) {
    return LoadColumn<kType>(p);
  }
  HR_KERNEL_INLINE static Column Zero() { return _mm512_setzero_ps(); }
  HR_KERNEL_INLINE static Column AddTimes(Column w, float x, Column sum) {
    return _mm512_fmadd_ps(w, _mm512_set1_ps(x), sum);
  }
  HR_KERNEL_INLINE static Column AddTimes(Column w, Column x, Column sum) { return _mm512_fmadd_ps(w, x, sum); }
  HR_KERNEL_INLINE static void Store(const MatMul& op, int64_t m, int64_t panel, Column sum) {
    StorePanel(op, m, panel, sum);
  }
};

}  // namespace

void Avx512FloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  FloatPanels<Columns>(op, panel_begin, panel_end);
}

}  // namespace headrace
