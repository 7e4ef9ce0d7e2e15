// The class L of matmul_panels.h on NEON with dot products: a vector holds four rows by four columns, the activations
// of 16 columns are one vector whose lanes multiply in turn (sdot by lane). In an unnamed namespace: the other
// instruction sets have the same names.
#pragma once

#include "kernels/matmul_panels.h"
#include "kernels/neon/formats.h"

namespace headrace {
namespace {

// sum.v[i] += line `kLane` of the 16 columns at x.
struct Ints8 {
  int32x4_t v[2];
};
template <int kLane>
HR_KERNEL_INLINE void AddLine(Ints8& sum, const Line8& w, int8x16_t x) {
  sum.v[0] = vdotq_laneq_s32(sum.v[0], w.v[0], x, kLane);
  sum.v[1] = vdotq_laneq_s32(sum.v[1], w.v[1], x, kLane);
}

// The two of PackHalfSums.
HR_KERNEL_INLINE int16_t HalfSum(int32_t sums, int half) { return static_cast<int16_t>(half == 0 ? sums : sums >> 16); }

// part[n] += 16 columns of the group.
template <typename Weights, int N>
HR_KERNEL_INLINE void AddHalfGroup(const Weights& w, int64_t g, const int8_t* q, int half, Ints8* part) {
  int8x16_t x[N];
  HR_UNROLL for (int n = 0; n < N; ++n) x[n] = vld1q_s8(q + n * kGroup + 16 * half);
  const auto add = [&]<int kLane>() __attribute__((always_inline)) {
    const Line8 line = w.Line(g, 4 * half + kLane);
    HR_UNROLL for (int n = 0; n < N; ++n) AddLine<kLane>(part[n], line, x[n]);
  };
  add.template operator()<0>();
  add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<3>();
}

HR_KERNEL_INLINE Floats8 ToFloats(const Ints8& x) { return {vcvtq_f32_s32(x.v[0]), vcvtq_f32_s32(x.v[1])}; }
HR_KERNEL_INLINE Ints8 Both(int32_t x) { return {vdupq_n_s32(x), vdupq_n_s32(x)}; }

struct HalfPanel {
  using F = Floats8;
  using Group = UnpackedGroup;
  template <DType kType>
  using Reader = PanelReader<kType>;
  template <GroupKind kKind, int kCodeMax>
  using Unpacked = UnpackedReader<kKind, kCodeMax>;
  static constexpr int kSubTileRows = 4;  // 32 registers: eight sums, eight dots, four of activations, a line, masks

  HR_KERNEL_INLINE static F Zero() { return Set(0); }
  HR_KERNEL_INLINE static F Set(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  HR_KERNEL_INLINE static F Load(const float* p) { return LoadFloats(p); }
  HR_KERNEL_INLINE static void Store(float* p, F x) { StoreFloats(p, x); }
  HR_KERNEL_INLINE static F Add(F a, F b) { return {vaddq_f32(a.v[0], b.v[0]), vaddq_f32(a.v[1], b.v[1])}; }
  HR_KERNEL_INLINE static F Mul(F a, F b) { return MulFloats(a, b); }
  HR_KERNEL_INLINE static F Fma(F a, F b, F c) {
    return {vfmaq_f32(c.v[0], a.v[0], b.v[0]), vfmaq_f32(c.v[1], a.v[1], b.v[1])};
  }
  HR_KERNEL_INLINE static F LoadFirst(const float* p, int64_t n) {
    return {headrace::LoadFirst(p, n), headrace::LoadFirst(p + 4, n - 4)};
  }
  HR_KERNEL_INLINE static void StoreFirst(float* p, int64_t n, F x) {
    headrace::StoreFirst(p, n, x.v[0]);
    headrace::StoreFirst(p + 4, n - 4, x.v[1]);
  }
  HR_KERNEL_INLINE static F PairDot(const Pair8& pair, int32_t sums) {
    const int16_t first = HalfSum(sums, 0), second = HalfSum(sums, 1);
    return ToFloats({vmlal_n_s16(vmull_n_s16(vget_low_s16(pair.of[0]), first), vget_low_s16(pair.of[1]), second),
                     vmlal_high_n_s16(vmull_high_n_s16(pair.of[0], first), pair.of[1], second)});
  }
  HR_KERNEL_INLINE static constexpr bool HasSignedLines(int code_max) { return SignedLines(code_max); }

  // The sums begin at what the codes' offset adds too much.
  template <typename Weights, int N>
  HR_KERNEL_INLINE static void GroupDots(const Weights& w, int64_t g, const Entries& x, int64_t at, F* dot) {
    constexpr bool kHasOffset = !HasMin(Weights::kKind) && !Weights::kSigned;
    const int8_t* q = x.quants + at * kGroup;
    if constexpr (!HasFactors(Weights::kKind)) {
      Ints8 whole[N];
      HR_UNROLL for (int n = 0; n < N; ++n) {
        const int32_t sums = kHasOffset ? x.sum[at + n] : 0;
        whole[n] = Both(kHasOffset ? -w.Offset() * (HalfSum(sums, 0) + HalfSum(sums, 1)) : 0);
      }
      HR_UNROLL for (int half = 0; half < 2; ++half) AddHalfGroup<Weights, N>(w, g, q, half, whole);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = ToFloats(whole[n]);
    } else {
      Ints8 whole[N];
      const Pair8 pair = w.FactorPair(g);
      HR_UNROLL for (int half = 0; half < 2; ++half) {
        Ints8 part[N];
        HR_UNROLL for (int n = 0; n < N; ++n) {
          part[n] = Both(kHasOffset ? -w.Offset() * HalfSum(x.sum[at + n], half) : 0);
        }
        AddHalfGroup<Weights, N>(w, g, q, half, part);
        const int32x4_t factor[2] = {vmovl_s16(vget_low_s16(pair.of[half])), vmovl_high_s16(pair.of[half])};
        HR_UNROLL for (int n = 0; n < N; ++n) {
          HR_UNROLL for (int v = 0; v < 2; ++v) {
            whole[n].v[v] =
                half == 0 ? vmulq_s32(part[n].v[v], factor[v]) : vmlaq_s32(whole[n].v[v], part[n].v[v], factor[v]);
          }
        }
      }
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = ToFloats(whole[n]);
    }
  }
  template <typename Weights>
  HR_KERNEL_INLINE static void Unpack(const Weights& w, int64_t g, Group& to) {
    UnpackHalfGroup(w, g, to);
  }
};

}  // namespace
}  // namespace headrace
