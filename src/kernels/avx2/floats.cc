#include "kernels/avx2/floats.h"

#include "kernels/avx2/half_panel.h"
#include "kernels/float_tiles.h"

namespace headrace {
namespace {

// Value / 256: as a half, the sign above it.
HR_KERNEL_INLINE __m256 LoadE4m3(const std::byte* p) {
  const __m128i bytes = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i half = _mm_and_si128(_mm_slli_epi16(bytes, 7), _mm_set1_epi16(static_cast<int16_t>(0xBFFF)));
  return _mm256_cvtph_ps(half);
}

// Eight rows of one column.
template <DType kType>
HR_KERNEL_INLINE __m256 LoadHalf(const std::byte* p) {
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

struct Columns {
  struct Column {
    __m256 v[2];
  };
  static constexpr int kTileRows = 6;  // 12 sums, two vectors of weights and a value: 15 of 16 registers

  HR_KERNEL_INLINE static constexpr int PanelsAtOnce(int rows) { return rows == 1 ? 4 : 1; }
  template <DType kType>
  HR_KERNEL_INLINE static Column Load(const std::byte* p) {
    return {LoadHalf<kType>(p), LoadHalf<kType>(p + 8 * FloatBytes(kType))};
  }
  HR_KERNEL_INLINE static Column Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  HR_KERNEL_INLINE static Column AddTimes(Column w, float x, Column sum) {
    const __m256 value = _mm256_set1_ps(x);
    return {_mm256_fmadd_ps(w.v[0], value, sum.v[0]), _mm256_fmadd_ps(w.v[1], value, sum.v[1])};
  }
  HR_KERNEL_INLINE static Column AddTimes(Column w, Column x, Column sum) {
    return {_mm256_fmadd_ps(w.v[0], x.v[0], sum.v[0]), _mm256_fmadd_ps(w.v[1], x.v[1], sum.v[1])};
  }
  HR_KERNEL_INLINE static void Store(const MatMul& op, int64_t m, int64_t panel, Column sum) {
    StoreHalf<HalfPanel>(op, m, panel * kPanelRows, sum.v[0]);
    StoreHalf<HalfPanel>(op, m, panel * kPanelRows + 8, sum.v[1]);
  }
};

}  // namespace

void Avx2FloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  FloatPanels<Columns>(op, panel_begin, panel_end);
}

}  // namespace headrace
