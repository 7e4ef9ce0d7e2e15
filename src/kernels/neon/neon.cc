// The NEON table (AArch64 with dot products), activations and rows, equal to the reference to the bit. Intrinsics and
// plain structs only.
#include "kernels/neon/neon.h"

#include "kernels/kernel_table.h"
#include "kernels/neon/lanes.h"

namespace headrace {
namespace {

// ---- activations ---------------------------------------------------------------------------------------------------

// 32 integers that fit bytes, and their sums by halves.
HR_KERNEL_INLINE void StoreQuants(const int32x4_t* q, int8_t* out, int32_t* sums) {
  HR_UNROLL for (int half = 0; half < 2; ++half) {
    const int32x4_t* x = q + 4 * half;
    sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(x[0], x[1]), vaddq_s32(x[2], x[3])));
    const int16x8_t low = vcombine_s16(vmovn_s32(x[0]), vmovn_s32(x[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(x[2]), vmovn_s32(x[3]));
    vst1q_s8(out + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
}

HR_KERNEL_INLINE float LargestMagnitude(const float* x) {
  float32x4_t top = vdupq_n_f32(0);
  HR_UNROLL for (int i = 0; i < 8; ++i) top = vmaxnmq_f32(top, vabsq_f32(vld1q_f32(x + 4 * i)));
  return vmaxnmvq_f32(top);
}

// What the first plane leaves over, x - scale * q, in steps of scale / 254.
void QuantizeRest(const Activations& a, int64_t row, int64_t group, int64_t entry) {
  const float* x = a.values + row * a.value_stride + group * kGroup;
  const int64_t at = a.GroupIndex(row, group);
  const float largest = LargestMagnitude(x);
  const float inverse = (largest > 0 ? 127.0f / largest : 0.0f) * 254.0f;
  const float32x4_t scale = vdupq_n_f32(a.scale[at]), most = vdupq_n_f32(127.0f);
  int32x4_t rest[8];
  HR_UNROLL for (int i = 0; i < 4; ++i) {
    const int16x8_t q = vmovl_s8(vld1_s8(a.quants + at * kGroup + 8 * i));
    const float32x4_t quants[2] = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(q))), vcvtq_f32_s32(vmovl_high_s16(q))};
    HR_UNROLL for (int j = 0; j < 2; ++j) {
      const float32x4_t left = vfmsq_f32(vld1q_f32(x + 8 * i + 4 * j), quants[j], scale);
      const float32x4_t steps = vrndnq_f32(vmulq_n_f32(left, inverse));
      rest[2 * i + j] = vcvtq_s32_f32(vmaxq_f32(vminq_f32(steps, most), vnegq_f32(most)));
    }
  }
  int32_t sums[2];
  StoreQuants(rest, a.rest_quants + entry * kGroup, sums);
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = PackHalfSums(sums[0], sums[1]);
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(sums[0] + sums[1]);
}

void QuantizeRow(const Activations& a, int64_t row) {
  const float* x = a.values + row * a.value_stride;
  float squares[16] = {};
  for (int64_t g = 0; g < a.groups(); ++g) {
    const float largest = LargestMagnitude(x + g * kGroup);
    a.scale[a.GroupIndex(row, g)] = largest;
    squares[g % 16] = squares[g % 16] + largest * largest;
  }
  const float threshold = a.wide_ratio * TreeSum16(squares) / static_cast<float>(a.groups());
  for (int64_t g = 0; g < a.groups(); ++g, x += kGroup) {
    const int64_t at = a.GroupIndex(row, g);
    const float largest = a.scale[at];
    const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
    int32x4_t q[8];
    HR_UNROLL for (int i = 0; i < 8; ++i) q[i] = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4 * i), inverse));
    int32_t sums[2];
    StoreQuants(q, a.quants + at * kGroup, sums);
    a.scale[at] = largest / 127.0f;
    a.sum[at] = PackHalfSums(sums[0], sums[1]);
    a.scaled_sum[at] = a.scale[at] * static_cast<float>(sums[0] + sums[1]);
    a.wide[row * a.groups() + g] = largest * largest > threshold;
  }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  float32x4_t squares[4];
  HR_UNROLL for (int j = 0; j < 4; ++j) squares[j] = vdupq_n_f32(0);
  for (int64_t i = 0; i < n; i += 16) {
    HR_UNROLL for (int j = 0; j < 4; ++j) {
      const float32x4_t v = LoadFirst(x + i + 4 * j, n - i - 4 * j);
      squares[j] = vfmaq_f32(squares[j], v, v);
    }
  }
  const float mean = Tree(squares) / static_cast<float>(n) + eps;
  const float scale = 1.0f / __builtin_sqrtf(mean);
  for (int64_t i = 0; i < n; i += 4) {
    const float32x4_t scaled = vmulq_n_f32(LoadFirst(x + i, n - i), scale);
    StoreFirst(out + i, n - i, vmulq_f32(scaled, LoadFirst(weight + i, n - i)));
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  const float32x4_t one = vdupq_n_f32(1.0f);
  for (int64_t i = 0; i < n; i += 4) {
    const float32x4_t x = LoadFirst(gate + i, n - i);
    const float32x4_t silu = vdivq_f32(x, vaddq_f32(one, Exp4(vnegq_f32(x))));
    StoreFirst(out + i, n - i, vmulq_f32(silu, LoadFirst(up + i, n - i)));
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  const float32x4_t one = vdupq_n_f32(1.0f), linear = vdupq_n_f32(kGeluLinear), cubic = vdupq_n_f32(kGeluCubic);
  for (int64_t i = 0; i < n; i += 4) {
    const float32x4_t x = LoadFirst(gate + i, n - i);
    const float32x4_t u2 = vmulq_f32(x, vfmaq_f32(linear, vmulq_f32(x, x), cubic));
    const float32x4_t gelu = vdivq_f32(x, vaddq_f32(one, Exp4(vnegq_f32(u2))));
    StoreFirst(out + i, n - i, vmulq_f32(gelu, LoadFirst(up + i, n - i)));
  }
}

float RowMax(const float* x, int64_t n) {
  float32x4_t top = vdupq_n_f32(x[0]);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) top = MaxOr(vld1q_f32(x + i), top);
  float largest = vmaxnmvq_f32(top);
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void ExpRow(const float* x, int64_t n, float max, float inverse_temperature, float* out) {
  const float32x4_t top = vdupq_n_f32(max);
  for (int64_t i = 0; i < n; i += 4) {
    const float32x4_t v = vsubq_f32(LoadFirst(x + i, n - i), top);
    StoreFirst(out + i, n - i, Exp4(vmulq_n_f32(v, inverse_temperature)));
  }
}

}  // namespace

const KernelTable& NeonKernels() {
  static constexpr KernelTable kTable{"neon",     QuantizeRow, QuantizeRest, NeonMatMul, nullptr,
                                      RmsNorm,    SiluMul,     GeluMul,      NeonAttend, NeonMergeAttention,
                                      NeonRotate, NeonStoreKv, RowMax,       ExpRow,     &kNeonSampling};
  return kTable;
}

}  // namespace headrace
