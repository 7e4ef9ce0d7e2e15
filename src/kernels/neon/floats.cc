// The NEON product of weights that are floats: a whole panel, four vectors of rows, at a time.
#include "kernels/float_tiles.h"
#include "kernels/neon/half_panel.h"
#include "kernels/neon/neon.h"

namespace headrace {
namespace {

// 16 rows of one column.
struct ColumnOf16 {
  float32x4_t v[4];
};

HR_KERNEL_INLINE float32x4_t FromHalves(uint16x4_t x) { return vcvt_f32_f16(vreinterpret_f16_u16(x)); }

template <DType kType>
HR_KERNEL_INLINE ColumnOf16 LoadColumn(const std::byte* p) {
  ColumnOf16 c;
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
      // E4M3: value / 256, as a half, the sign above it.
      const uint16x8_t halves = kType == DType::kF8E5M2
                                    ? vshlq_n_u16(vreinterpretq_u16_s16(bytes), 8)
                                    : vandq_u16(vshlq_n_u16(vreinterpretq_u16_s16(bytes), 7), vdupq_n_u16(0xBFFF));
      c.v[2 * i] = FromHalves(vget_low_u16(halves));
      c.v[2 * i + 1] = FromHalves(vget_high_u16(halves));
    }
  }
  return c;
}

struct Columns {
  using Column = ColumnOf16;
  static constexpr int kTileRows = 6;  // 24 sums, four vectors of weights and a value: 29 of 32 registers

  HR_KERNEL_INLINE static constexpr int PanelsAtOnce(int rows) { return rows == 1 ? 4 : 1; }
  template <DType kType>
  HR_KERNEL_INLINE static Column Load(const std::byte* p) {
    return LoadColumn<kType>(p);
  }
  HR_KERNEL_INLINE static Column Zero() { return {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)}; }
  HR_KERNEL_INLINE static Column AddTimes(const Column& w, float x, Column sum) {
    HR_UNROLL for (int i = 0; i < 4; ++i) sum.v[i] = vfmaq_n_f32(sum.v[i], w.v[i], x);
    return sum;
  }
  HR_KERNEL_INLINE static Column AddTimes(const Column& w, const Column& x, Column sum) {
    HR_UNROLL for (int i = 0; i < 4; ++i) sum.v[i] = vfmaq_f32(sum.v[i], w.v[i], x.v[i]);
    return sum;
  }
  HR_KERNEL_INLINE static void Store(const MatMul& op, int64_t m, int64_t panel, const Column& sum) {
    StoreHalf<HalfPanel>(op, m, panel * kPanelRows, {sum.v[0], sum.v[1]});
    StoreHalf<HalfPanel>(op, m, panel * kPanelRows + 8, {sum.v[2], sum.v[3]});
  }
};

}  // namespace

void NeonFloatMatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  FloatPanels<Columns>(op, panel_begin, panel_end);
}

}  // namespace headrace
