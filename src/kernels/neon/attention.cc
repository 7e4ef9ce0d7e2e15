// Attention on NEON.
#include "kernels/attention_tiles.h"
#include "kernels/neon/lanes.h"
#include "kernels/neon/neon.h"

namespace headrace {
namespace {

struct Lanes {
  // Eight 16-bit integers in `low`, or the products of the first and of the last of them, added in pairs at the end.
  struct I {
    int32x4_t low, high;
  };
  using F = float32x4_t;
  // 32 registers: two for each of 12 sums, four vectors of keys or values, a pair of the query.
  static constexpr int kLanes = 4, kQueries = 3, kVectors = 4;

  HR_KERNEL_INLINE static F Zero() { return vdupq_n_f32(0); }
  HR_KERNEL_INLINE static F Set(float x) { return vdupq_n_f32(x); }
  HR_KERNEL_INLINE static F Load(const float* p) { return vld1q_f32(p); }
  HR_KERNEL_INLINE static void Store(float* p, F x) { vst1q_f32(p, x); }
  HR_KERNEL_INLINE static F Add(F a, F b) { return vaddq_f32(a, b); }
  HR_KERNEL_INLINE static F Sub(F a, F b) { return vsubq_f32(a, b); }
  HR_KERNEL_INLINE static F Mul(F a, F b) { return vmulq_f32(a, b); }
  HR_KERNEL_INLINE static F Div(F a, F b) { return vdivq_f32(a, b); }
  HR_KERNEL_INLINE static F Max(F a, F b) { return vmaxnmq_f32(a, b); }
  HR_KERNEL_INLINE static F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  HR_KERNEL_INLINE static F Abs(F a) { return vabsq_f32(a); }
  HR_KERNEL_INLINE static F ExpBelow88(F a) { return headrace::ExpBelow88(a); }
  HR_KERNEL_INLINE static float LargestOf(F a) { return vmaxnmvq_f32(a); }
  HR_KERNEL_INLINE static float TreeOf(const F* sum) { return Tree(sum); }
  HR_KERNEL_INLINE static F Keep(F x, int begin, int end, F other) {
    return vbslq_f32(vbicq_u32(LaneMask(end), LaneMask(begin)), x, other);
  }
  HR_KERNEL_INLINE static F LoadTwice(const float* p) {
    const float32x2_t two = vld1_f32(p);
    return vcombine_f32(vdup_lane_f32(two, 0), vdup_lane_f32(two, 1));
  }
  HR_KERNEL_INLINE static F SwapPairs(F x) { return vrev64q_f32(x); }
  HR_KERNEL_INLINE static F NegateEven(F x) {
    const uint32x4_t even = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000));
    return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(x), even));
  }
  HR_KERNEL_INLINE static I ZeroI() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  HR_KERNEL_INLINE static I Shorts(int16x8_t x) { return {vreinterpretq_s32_s16(x), vdupq_n_s32(0)}; }
  HR_KERNEL_INLINE static I LoadPairs(const int16_t* p) { return Shorts(vld1q_s16(p)); }
  HR_KERNEL_INLINE static I LoadPairs(const int8_t* p) { return Shorts(vmovl_s8(vld1_s8(p))); }
  HR_KERNEL_INLINE static void StorePairs(int16_t* p, const I& x) { vst1q_s16(p, vreinterpretq_s16_s32(x.low)); }
  HR_KERNEL_INLINE static I SplatPair(const int16_t* p) {
    int32_t pair;
    __builtin_memcpy(&pair, p, sizeof pair);
    return {vdupq_n_s32(pair), vdupq_n_s32(0)};
  }
  HR_KERNEL_INLINE static void AddDot(I& acc, const I& a, const I& b) {
    const int16x8_t x = vreinterpretq_s16_s32(a.low), y = vreinterpretq_s16_s32(b.low);
    acc.low = vmlal_s16(acc.low, vget_low_s16(x), vget_low_s16(y));
    acc.high = vmlal_high_s16(acc.high, x, y);
  }
  HR_KERNEL_INLINE static F ToFloat(const I& a) { return vcvtq_f32_s32(vpaddq_s32(a.low, a.high)); }
  HR_KERNEL_INLINE static void StoreInterleaved(int16_t* pairs, const int16_t* x, int place) {
    int16x4x2_t both = vld2_s16(pairs);
    (place == 0 ? both.val[0] : both.val[1]) = vld1_s16(x);
    vst2_s16(pairs, both);
  }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x) { vst1_s16(p, vqmovn_s32(vcvtnq_s32_f32(x))); }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x, F y) {
    vst1q_s16(p, vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(x)), vcvtnq_s32_f32(y)));
  }
};

}  // namespace

void NeonAttend(const Attention& op) { AttendTiles<Lanes>(op); }
void NeonMergeAttention(const AttentionMerge& op) { MergeTiles<Lanes>(op); }
void NeonStoreKv(const KvSlot& op) { StoreKvTiles<Lanes>(op); }
void NeonRotate(const Rotation& op) { RotateTiles<Lanes>(op); }

}  // namespace headrace
