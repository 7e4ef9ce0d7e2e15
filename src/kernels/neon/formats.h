// Groups of 32 columns of half a packed panel (eight rows, two vectors) on NEON: PanelReader decodes them where they
// lie, UnpackedReader reads decoded ones from memory. All is in an unnamed namespace: the other instruction sets have
// the same names.
#pragma once

#include "kernels/matmul_tiles.h"
#include "kernels/neon/lanes.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 3072;

struct HalfPanel;  // half_panel.h

// Eight rows: floats, four signed bytes of each, or 16-bit integers for both halves of a group.
struct Floats8 {
  float32x4_t v[2];
};
struct Line8 {
  int8x16_t v[2];
};
struct Pair8 {
  int16x8_t of[2];
};

HR_KERNEL_INLINE Floats8 MulFloats(Floats8 a, Floats8 b) {
  return {vmulq_f32(a.v[0], b.v[0]), vmulq_f32(a.v[1], b.v[1])};
}
HR_KERNEL_INLINE Floats8 NegativeOf(Floats8 x) { return {vnegq_f32(x.v[0]), vnegq_f32(x.v[1])}; }
HR_KERNEL_INLINE Floats8 HalvesOf(const uint16_t* p) { return {LoadHalves(p), LoadHalves(p + 4)}; }
HR_KERNEL_INLINE Floats8 LoadFloats(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
HR_KERNEL_INLINE void StoreFloats(float* p, Floats8 x) {
  vst1q_f32(p, x.v[0]);
  vst1q_f32(p + 4, x.v[1]);
}
HR_KERNEL_INLINE Floats8 BytesToFloats(const uint8_t* p) {
  const uint16x8_t shorts = vmovl_u8(vld1_u8(p));
  return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(shorts))), vcvtq_f32_u32(vmovl_high_u16(shorts))};
}

// HalfE8m0ToFloat.
HR_KERNEL_INLINE Floats8 HalfPowers(const uint8_t* p) {
  const uint16x8_t shorts = vmovl_u8(vld1_u8(p));
  const auto power = [](uint32x4_t e) __attribute__((always_inline)) {
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
    const uint32x4_t bits = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, bits));
  };
  return {power(vmovl_u16(vget_low_u16(shorts))), power(vmovl_high_u16(shorts))};
}

// Codes of 8 bits are taken as code - offset, which fits a signed byte; all others as they are.
constexpr bool SignedLines(int code_max) { return code_max > 127; }

template <DType kType>
struct PanelReader {
  using L = HalfPanel;
  static constexpr PanelFormat kFormat = FormatOf(kType);
  static constexpr GroupKind kKind = kFormat.kind;
  static constexpr bool kSigned = SignedLines(kFormat.code_max);
  const std::byte* head;
  const std::byte* blocks;
  int half;

  HR_KERNEL_INLINE PanelReader(const std::byte* panel, int half_panel, int64_t groups)
      : head(panel), blocks(panel + kFormat.HeadBytes(groups)), half(half_panel) {}

  // What a group takes of the stream, scales included.
  static constexpr int kStepBytes = kFormat.block_bytes() / kFormat.block_groups;
  HR_KERNEL_INLINE const std::byte* Ahead(int64_t g) const { return blocks + g * kStepBytes; }
  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    HR_UNROLL for (int i = 0; i < (kStepBytes + 63) / 64; ++i) __builtin_prefetch(Ahead(g) + kPrefetchBytes + 64 * i);
  }

  HR_KERNEL_INLINE static int64_t BlockOf(int64_t g) {
    return static_cast<int64_t>(static_cast<uint64_t>(g) / kFormat.block_groups);
  }
  HR_KERNEL_INLINE static int64_t PartOf(int64_t g) {
    return static_cast<int64_t>(static_cast<uint64_t>(g) % kFormat.block_groups);
  }
  template <typename Scales>
  HR_KERNEL_INLINE const Scales& ScalesAt(int64_t g) const {
    return *reinterpret_cast<const Scales*>(blocks + BlockOf(g) * kFormat.block_bytes());
  }
  HR_KERNEL_INLINE Floats8 HalvesAt(const void* p) const {
    return HalvesOf(static_cast<const uint16_t*>(p) + 8 * half);
  }

  // Columns 4 * line ... 4 * line + 3 of rows 4 * v ... 4 * v + 3 of the half.
  HR_KERNEL_INLINE uint8x16_t Codes(const uint8_t* planes, int line, int v) const {
    constexpr int kLow = kFormat.low_bits, kHigh = kFormat.high_bits;
    uint8x16_t codes = vld1q_u8(planes + line % kLow * 64 + 16 * v);
    if constexpr (kLow < 8) {
      const int shift = line / kLow * kLow;
      if (shift != 0) codes = vshlq_u8(codes, vdupq_n_s8(static_cast<int8_t>(-shift)));
      if (shift + kLow < 8) codes = vandq_u8(codes, vdupq_n_u8((1 << kLow) - 1));
    }
    if constexpr (kHigh > 0) {
      const uint8x16_t plane = vld1q_u8(planes + 64 * (kLow + line % kHigh) + 16 * v);
      const int left = kLow - line / kHigh * kHigh;
      const uint8x16_t bits = left == 0 ? plane : vshlq_u8(plane, vdupq_n_s8(static_cast<int8_t>(left)));
      codes = vorrq_u8(codes, vandq_u8(bits, vdupq_n_u8(((1 << kHigh) - 1) << kLow)));
    }
    if constexpr (kFormat.has_book) {
      static constexpr CodeBook kBook = CodeBookOf(kType);
      codes = vqtbl1q_u8(vld1q_u8(kBook.entries), codes);
    }
    // The offset of such codes is 128: taking it away is flipping the top bit.
    if constexpr (kSigned) codes = veorq_u8(codes, vdupq_n_u8(0x80));
    return codes;
  }
  HR_KERNEL_INLINE Line8 Line(int64_t g, int line) const {
    const auto* planes = reinterpret_cast<const uint8_t*>(blocks + BlockOf(g) * kFormat.block_bytes() +
                                                          kFormat.scale_bytes + PartOf(g) * kFormat.group_bytes()) +
                         32 * half;
    return {vreinterpretq_s8_u8(Codes(planes, line, 0)), vreinterpretq_s8_u8(Codes(planes, line, 1))};
  }

  HR_KERNEL_INLINE static constexpr int Offset() { return kSigned ? 0 : kFormat.offset; }

  HR_KERNEL_INLINE Floats8 Scale(int64_t g) const {
    if constexpr (kType == DType::kMXFP4) {
      return HalfPowers(reinterpret_cast<const uint8_t*>(head) + g * kFormat.head_bytes + 8 * half);
    } else if constexpr (kFormat.head_bytes != 0) {
      return HalvesAt(head + BlockOf(g) * kFormat.head_bytes);
    } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return MulFloats(HalvesAt(s.scale), BytesToFloats(s.scales[PartOf(g)] + 8 * half));
    } else {
      return HalvesAt(&ScalesAt<ScaleMin16>(g));  // the first piece of every block's scales
    }
  }

  // REQUIRES: kMin or kFactorsAndMins.
  HR_KERNEL_INLINE Floats8 Min(int64_t g) const {
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return MulFloats(NegativeOf(HalvesAt(s.min_scale)), BytesToFloats(s.mins[PartOf(g)] + 8 * half));
    } else if constexpr (kType == DType::kQ2_K) {
      return NegativeOf(HalvesAt(ScalesAt<ScalesQ2K>(g).min_scale));
    } else {
      return HalvesAt(ScalesAt<ScaleMin16>(g).min);
    }
  }

  // The factors of both halves of the group. REQUIRES: kFactors or kFactorsAndMins.
  HR_KERNEL_INLINE Pair8 FactorPair(int64_t g) const {
    Pair8 pair;
    HR_UNROLL for (int h = 0; h < 2; ++h) {
      if constexpr (kType == DType::kQ2_K) {
        const uint8x8_t both = vld1_u8(ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)][h] + 8 * half);
        pair.of[h] = vreinterpretq_s16_u16(vmovl_u8(vand_u8(both, vdup_n_u8(15))));
      } else {
        pair.of[h] = vmovl_s8(vld1_s8(ScalesAt<FactorsQ36K>(g).factors[PartOf(g)][h] + 8 * half));
      }
    }
    return pair;
  }

  // The integer minimums of both halves of the group. REQUIRES: kFactorsAndMins.
  HR_KERNEL_INLINE Pair8 MinPair(int64_t g) const {
    Pair8 pair;
    HR_UNROLL for (int h = 0; h < 2; ++h) {
      const uint8x8_t both = vld1_u8(ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)][h] + 8 * half);
      pair.of[h] = vreinterpretq_s16_u16(vmovl_u8(vshr_n_u8(both, 4)));
    }
    return pair;
  }
};

// A group of a whole panel in memory. What its kind does not have is not written and takes no place in the cache.
struct alignas(64) UnpackedGroup {
  int8_t lines[8][64];
  float scale[kPanelRows];
  float min[kPanelRows];
  int16_t factor[2][kPanelRows];
  int16_t min_pair[2][kPanelRows];
};

template <typename Reader>
HR_KERNEL_INLINE void UnpackHalfGroup(const Reader& w, int64_t g, UnpackedGroup& to) {
  const int row = 8 * w.half;
  HR_UNROLL for (int line = 0; line < 8; ++line) {
    const Line8 codes = w.Line(g, line);
    vst1q_s8(to.lines[line] + 4 * row, codes.v[0]);
    vst1q_s8(to.lines[line] + 4 * row + 16, codes.v[1]);
  }
  StoreFloats(to.scale + row, w.Scale(g));
  if constexpr (HasMin(Reader::kKind)) StoreFloats(to.min + row, w.Min(g));
  if constexpr (HasFactors(Reader::kKind)) {
    const Pair8 pair = w.FactorPair(g);
    HR_UNROLL for (int h = 0; h < 2; ++h) vst1q_s16(to.factor[h] + row, pair.of[h]);
  }
  if constexpr (Reader::kKind == GroupKind::kFactorsAndMins) {
    const Pair8 pair = w.MinPair(g);
    HR_UNROLL for (int h = 0; h < 2; ++h) vst1q_s16(to.min_pair[h] + row, pair.of[h]);
  }
}

// Groups of one kind whose codes are at most kCodeMax.
template <GroupKind kGroupKind, int kCodeMax>
struct UnpackedReader {
  using L = HalfPanel;
  static constexpr GroupKind kKind = kGroupKind;
  static constexpr bool kSigned = SignedLines(kCodeMax);
  const UnpackedGroup* groups;
  int offset;
  const std::byte* next;  // the stream's next bytes, to be prefetched while these are used
  int next_lines;         // a group's share
  int half;

  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    for (int i = 0; i < next_lines; ++i) __builtin_prefetch(next + 64 * (g * next_lines + i));
  }
  HR_KERNEL_INLINE Line8 Line(int64_t g, int line) const {
    const int8_t* p = groups[g].lines[line] + 32 * half;
    return {vld1q_s8(p), vld1q_s8(p + 16)};
  }
  HR_KERNEL_INLINE int Offset() const { return offset; }
  HR_KERNEL_INLINE Floats8 Scale(int64_t g) const { return LoadFloats(groups[g].scale + 8 * half); }
  HR_KERNEL_INLINE Floats8 Min(int64_t g) const { return LoadFloats(groups[g].min + 8 * half); }
  HR_KERNEL_INLINE Pair8 FactorPair(int64_t g) const { return PairAt(groups[g].factor); }
  HR_KERNEL_INLINE Pair8 MinPair(int64_t g) const { return PairAt(groups[g].min_pair); }
  HR_KERNEL_INLINE Pair8 PairAt(const int16_t (*p)[kPanelRows]) const {
    return {vld1q_s16(p[0] + 8 * half), vld1q_s16(p[1] + 8 * half)};
  }
};

}  // namespace
}  // namespace headrace
