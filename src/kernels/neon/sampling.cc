// The sampler's passes on NEON, equal to the reference to the bit. Intrinsics and plain structs only.
#include "kernels/sampling.h"

#include "kernels/neon/lanes.h"

namespace headrace {
namespace {

constexpr int kVectors = kSampleBlock / 4;

// 16 lanes of doubles, as eight pairs.
struct Sum16 {
  float64x2_t lanes[8];

  HR_KERNEL_INLINE Sum16() { HR_UNROLL for (int i = 0; i < 8; ++i) lanes[i] = vdupq_n_f64(0); }
  // The four values of a block's vector i.
  HR_KERNEL_INLINE void Add(int i, float32x4_t v) {
    const int at = i % 4 * 2;
    lanes[at] = vaddq_f64(lanes[at], vcvt_f64_f32(vget_low_f32(v)));
    lanes[at + 1] = vaddq_f64(lanes[at + 1], vcvt_high_f64_f32(v));
  }
  HR_KERNEL_INLINE double Total() const {
    float64x2_t t[4];
    HR_UNROLL for (int i = 0; i < 4; ++i) t[i] = vaddq_f64(lanes[i], lanes[i + 4]);
    const float64x2_t two = vaddq_f64(vaddq_f64(t[0], t[2]), vaddq_f64(t[1], t[3]));
    return vgetq_lane_f64(two, 0) + vgetq_lane_f64(two, 1);
  }
};

HR_KERNEL_INLINE float32x4_t Load(const float* x, int64_t n, int i) {
  return n >= kSampleBlock ? vld1q_f32(x + 4 * i) : LoadFirst(x + 4 * i, n - 4 * i);
}
// Lanes of vector i that are at least `low` and lie within a block of n.
HR_KERNEL_INLINE uint32x4_t AtLeast(float32x4_t v, float32x4_t low, int64_t n, int i) {
  const uint32x4_t kept = vcgeq_f32(v, low);
  return n >= kSampleBlock ? kept : vandq_u32(kept, LaneMask(n - 4 * i));
}
HR_KERNEL_INLINE float32x4_t Where(uint32x4_t mask, float32x4_t v) {
  return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(v)));
}

void BlockMax(const float* x, int64_t n, float* maxima) {
  const float32x4_t none = vdupq_n_f32(-__builtin_inff());
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t size = n - first;
    float32x4_t top = none;
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      float32x4_t v = Load(x + first, size, i);
      if (size < kSampleBlock) v = vbslq_f32(LaneMask(size - 4 * i), v, none);
      top = MaxOr(v, top);
    }
    maxima[first / kSampleBlock] = vmaxvq_f32(top);
  }
}

void ExpBlocks(const float* x, int64_t n, float max, float inverse_temperature, float least, float* out, double* sums) {
  const float32x4_t top = vdupq_n_f32(max), low = vdupq_n_f32(least);
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t size = n - first;
    Sum16 sum;
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      const float32x4_t v = Load(x + first, size, i);
      const uint32x4_t kept = AtLeast(v, low, size, i);
      const float32x4_t p = Where(kept, Exp4(vmulq_n_f32(vsubq_f32(v, top), inverse_temperature)));
      StoreFirst(out + first + 4 * i, size - 4 * i, p);
      sum.Add(i, p);
    }
    sums[first / kSampleBlock] = sum.Total();
  }
}

int64_t Tally(const float* v, const float* maxima, int64_t n, float least, double* sums) {
  const float32x4_t low = vdupq_n_f32(least);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t block = first / kSampleBlock, size = n - first;
    if (sums != nullptr) sums[block] = 0;
    if (maxima[block] < least) continue;
    Sum16 sum;
    uint32x4_t kept = vdupq_n_u32(0);
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      const float32x4_t values = Load(v + first, size, i);
      const uint32x4_t mask = AtLeast(values, low, size, i);
      kept = vsubq_u32(kept, mask);
      sum.Add(i, Where(mask, values));
    }
    count += vaddvq_u32(kept);
    if (sums != nullptr) sums[block] = sum.Total();
  }
  return count;
}

int64_t Collect(const float* v, const float* maxima, int64_t n, float low, float high, int32_t first_id, float* values,
                int32_t* ids) {
  const float32x4_t from = vdupq_n_f32(low), to = vdupq_n_f32(high);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    if (maxima[first / kSampleBlock] < low) continue;
    const int64_t size = n - first;
    for (int i = 0; i < kVectors; ++i) {
      const float32x4_t block = Load(v + first, size, i);
      const uint32x4_t kept = vandq_u32(AtLeast(block, from, size, i), vcltq_f32(block, to));
      if (vmaxvq_u32(kept) == 0) continue;
      uint32_t lanes[4];
      vst1q_u32(lanes, kept);
      for (int lane = 0; lane < 4; ++lane) {
        if (lanes[lane] == 0) continue;
        const int64_t at = first + 4 * i + lane;
        values[count] = v[at];
        ids[count++] = first_id + static_cast<int32_t>(at);
      }
    }
  }
  return count;
}

}  // namespace

const SamplingKernels kNeonSampling{BlockMax, ExpBlocks, Tally, Collect};

}  // namespace headrace
