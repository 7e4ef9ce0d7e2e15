// Four floats at a time: the canonical arithmetic of canonical.h on NEON. For the ISA files that are compiled for it;
// everything is inlined, so that no copy reaches the linker.
#pragma once

#include <arm_neon.h>

#include "kernels/canonical.h"

namespace headrace {

// x > low ? x : low, also for a NaN.
HR_KERNEL_INLINE float32x4_t MaxOr(float32x4_t x, float32x4_t low) { return vbslq_f32(vcgtq_f32(x, low), x, low); }

HR_KERNEL_INLINE float32x4_t LoadHalves(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }

// CanonicalExp of what is at most 88.
HR_KERNEL_INLINE float32x4_t ExpBelow88(float32x4_t x) {
  x = MaxOr(x, vdupq_n_f32(kExpLow));
  const float32x4_t magic = vdupq_n_f32(kRoundMagic), one = vdupq_n_f32(1.0f);
  const float32x4_t k = vsubq_f32(vaddq_f32(vmulq_f32(x, vdupq_n_f32(kLog2E)), magic), magic);
  float32x4_t f = vfmaq_f32(x, k, vdupq_n_f32(-kLn2High));
  f = vfmaq_f32(f, k, vdupq_n_f32(-kLn2Low));
  float32x4_t p = vfmaq_f32(vdupq_n_f32(kExpC4), vdupq_n_f32(kExpC5), f);
  p = vfmaq_f32(vdupq_n_f32(kExpC3), p, f);
  p = vfmaq_f32(vdupq_n_f32(kExpC2), p, f);
  p = vfmaq_f32(vdupq_n_f32(kExpC1), p, f);
  p = vfmaq_f32(one, p, f);
  const int32x4_t power = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(k), vdupq_n_s32(127)), 23);
  return vmulq_f32(p, vreinterpretq_f32_s32(power));
}

HR_KERNEL_INLINE float32x4_t Exp4(float32x4_t x) {
  const float32x4_t high = vdupq_n_f32(kExpHigh);
  // A NaN goes on to the lower bound.
  return ExpBelow88(vbslq_f32(vcgtq_f32(x, high), high, x));
}

// The tree over 16 lanes held as four vectors.
HR_KERNEL_INLINE float Tree(const float32x4_t* lanes) {
  const float32x4_t h4 = vaddq_f32(vaddq_f32(lanes[0], lanes[2]), vaddq_f32(lanes[1], lanes[3]));
  const float32x2_t h2 = vadd_f32(vget_low_f32(h4), vget_high_f32(h4));
  return vget_lane_f32(h2, 0) + vget_lane_f32(h2, 1);
}

// Lanes i < n set.
HR_KERNEL_INLINE uint32x4_t LaneMask(int64_t n) {
  const int32_t kLanes[4] = {0, 1, 2, 3};
  return vcgtq_s32(vdupq_n_s32(n >= 4 ? 4 : n <= 0 ? 0 : static_cast<int32_t>(n)), vld1q_s32(kLanes));
}

// The first n floats at p, zeros after them; nothing behind them is read.
HR_KERNEL_INLINE float32x4_t LoadFirst(const float* p, int64_t n) {
  if (n >= 4) return vld1q_f32(p);
  float lanes[4] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return vld1q_f32(lanes);
}
HR_KERNEL_INLINE void StoreFirst(float* p, int64_t n, float32x4_t x) {
  if (n >= 4) return vst1q_f32(p, x);
  float lanes[4];
  vst1q_f32(lanes, x);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

}  // namespace headrace
