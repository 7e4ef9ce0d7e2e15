// The NEON product of weights that are floats: a whole panel, four vectors of rows, at a time.
#include "kernels/neon/half_panel.h"
#include "kernels/neon/neon.h"

namespace headrace {
namespace {

// 16 rows of one column.
struct Column {
  float32x4_t v[4];
};

HR_KERNEL_INLINE float32x4_t FromHalves(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }

// E4m3ToFloat: as halves the exponents are 8 too low.
HR_KERNEL_INLINE float32x4_t FromE4m3(int16x4_t bytes) {
  const uint16x4_t magnitude = vand_u16(vreinterpret_u16_s16(bytes), vdup_n_u16(0x7F));
  const uint16x4_t sign = vand_u16(vreinterpret_u16_s16(bytes), vdup_n_u16(0x8000));
  const float32x4_t value = vmulq_n_f32(FromHalves(vorr_u16(vshl_n_u16(magnitude, 7), sign)), 256.0f);
  const int32x4_t nan = vmovl_s16(vreinterpret_s16_u16(vceq_u16(magnitude, vdup_n_u16(0x7F))));
  return vbslq_f32(vreinterpretq_u32_s32(nan), vreinterpretq_f32_u32(vdupq_n_u32(0x7FC00000)), value);
}

template <DType kType>
HR_KERNEL_INLINE Column LoadColumn(const std::byte* p) {
  Column c;
  HR_UNROLL for (int i = 0; i < 4; ++i) {
    if constexpr (kType == DType::kF32) {
      c.v[i] = vld1q_f32(reinterpret_cast<const float*>(p) + 4 * i);
    } else if constexpr (kType == DType::kF16) {
      c.v[i] = LoadHalves(reinterpret_cast<const uint16_t*>(p) + 4 * i);
    } else if constexpr (kType == DType::kBF16) {
      c.v[i] = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(p) + 4 * i), 16));
    }
  }
  if constexpr (FloatBytes(kType) == 1) {
    HR_UNROLL for (int i = 0; i < 2; ++i) {
      const int16x8_t bytes = vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(p) + 8 * i));
      const uint16x8_t halves = vshlq_n_u16(vreinterpretq_u16_s16(bytes), 8);
      constexpr bool kE4 = kType == DType::kF8E4M3;
      c.v[2 * i] = kE4 ? FromE4m3(vget_low_s16(bytes)) : FromHalves(vget_low_u16(halves));
      c.v[2 * i + 1] = kE4 ? FromE4m3(vget_high_s16(bytes)) : FromHalves(vget_high_u16(halves));
    }
  }
  return c;
}

HR_KERNEL_INLINE void StoreColumn(const MatMul& op, int64_t m, int64_t panel, const Column& sum) {
  StoreHalf<HalfPanel>(op, m, panel * kPanelRows, {sum.v[0], sum.v[1]});
  StoreHalf<HalfPanel>(op, m, panel * kPanelRows + 8, {sum.v[2], sum.v[3]});
}

HR_KERNEL_INLINE void AddColumn(Column& sum, const Column& w, float x) {
  HR_UNROLL for (int i = 0; i < 4; ++i) sum.v[i] = vfmaq_n_f32(sum.v[i], w.v[i], x);
}
HR_KERNEL_INLINE Column ZeroColumn() { return {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}; }

// A whole panel times N rows from `row`: 4 * N chains hide the latency of the multiply-add.
template <DType kType, int N>
void FloatTile(const MatMul& op, int64_t panel, int64_t row) {
  constexpr int kColumnBytes = kPanelRows * FloatBytes(kType);
  const Activations& a = op.activations;
  const float* x = a.values + row * a.value_stride;
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  Column acc[N];
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = ZeroColumn();
  for (int64_t k = 0; k < a.columns; ++k, w += kColumnBytes) {
    __builtin_prefetch(w + kPrefetchBytes);
    const Column column = LoadColumn<kType>(w);
    HR_UNROLL for (int n = 0; n < N; ++n) AddColumn(acc[n], column, x[n * a.value_stride + k]);
  }
  HR_UNROLL for (int n = 0; n < N; ++n) StoreColumn(op, row + n, panel, acc[n]);
}

// One row and four panels: 16 chains.
template <DType kType>
void FourPanels(const MatMul& op, int64_t panel) {
  constexpr int kPanels = 4, kColumnBytes = kPanelRows * FloatBytes(kType);
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  Column acc[kPanels];
  HR_UNROLL for (int p = 0; p < kPanels; ++p) acc[p] = ZeroColumn();
  for (int64_t k = 0; k < op.activations.columns; ++k, w += kColumnBytes) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      const std::byte* at = w + p * op.weights.panel_bytes;
      __builtin_prefetch(at + kPrefetchBytes);
      AddColumn(acc[p], LoadColumn<kType>(at), op.activations.values[k]);
    }
  }
  HR_UNROLL for (int p = 0; p < kPanels; ++p) StoreColumn(op, 0, panel + p, acc[p]);
}

constexpr int kFloatTileRows = 6;  // 24 sums, four vectors of weights and a value: 29 of 32 registers

template <DType T>
void RowsOf(const MatMul& op, int64_t panel, int64_t row, int64_t rows) {
  using TileFn = void (*)(const MatMul&, int64_t, int64_t);
  static constexpr TileFn kTiles[kFloatTileRows] = {FloatTile<T, 1>, FloatTile<T, 2>, FloatTile<T, 3>,
                                                    FloatTile<T, 4>, FloatTile<T, 5>, FloatTile<T, 6>};
  kTiles[(rows < kFloatTileRows ? rows : kFloatTileRows) - 1](op, panel, row);
}

}  // namespace

void NeonFloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
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
