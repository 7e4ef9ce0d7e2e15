// Groups of 32 columns of a packed panel on AVX-512, 16 rows at a time: PanelReader decodes them where they lie,
// HeldGroup keeps one in registers, UnpackedGroup in memory. All three have the same reading functions, for which the
// tiles of tiles.h are written once. All is in an unnamed namespace: the other instruction sets have the same names.
#pragma once

#include <immintrin.h>

#include "kernels/avx512/lanes.h"
#include "kernels/formats.h"

namespace headrace {
namespace {

// Bytes that a weight stream is prefetched ahead: far into the second-level cache, which has more lines under way than
// the first (16: 8 GB/s at 120 ns), and near into the first. Against 3 KiB into the first alone a row of a small model
// takes 12 % less time, eight rows the same (measured).
constexpr int kPrefetchFar = 16384, kPrefetchNear = 1024;

HR_KERNEL_INLINE __m512i BytesToInts(const void* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
HR_KERNEL_INLINE __m512 BytesToFloats(const void* p) { return _mm512_cvtepi32_ps(BytesToInts(p)); }
HR_KERNEL_INLINE __m512 Negative(__m512 x) { return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f)); }

// HalfE8m0ToFloat.
HR_KERNEL_INLINE __m512 HalfPowers(const void* p) {
  const __m512i e = BytesToInts(p), small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  const __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), small));
}

// Minus an offset, twice 16 bits: the integer dot of codes that are `offset` too large starts at the dot product of
// this and the half sums.
HR_KERNEL_INLINE __m512i MinusOffset(int offset) { return _mm512_set1_epi16(static_cast<int16_t>(-offset)); }

template <DType kType>
struct PanelReader {
  static constexpr PanelFormat kFormat = FormatOf(kType);
  static constexpr GroupKind kKind = kFormat.kind;
  static constexpr bool kHasOffset = kFormat.offset != 0;
  const std::byte* head;
  const std::byte* blocks;

  HR_KERNEL_INLINE PanelReader(const std::byte* panel, int64_t groups)
      : head(panel), blocks(panel + kFormat.HeadBytes(groups)) {}

  // What a group takes of the stream, scales included.
  static constexpr int kStepBytes = kFormat.block_bytes() / kFormat.block_groups;
  HR_KERNEL_INLINE const std::byte* Ahead(int64_t g) const { return blocks + g * kStepBytes; }
  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    HR_UNROLL for (int i = 0; i < (kStepBytes + 63) / 64; ++i) {
      const char* at = reinterpret_cast<const char*>(Ahead(g)) + 64 * i;
      _mm_prefetch(at + kPrefetchFar, _MM_HINT_T1);
      _mm_prefetch(at + kPrefetchNear, _MM_HINT_T0);
    }
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

  // Codes (or entries of the code book) of columns 4 * line ... 4 * line + 3.
  HR_KERNEL_INLINE __m512i Line(int64_t g, int line) const {
    constexpr int kLow = kFormat.low_bits, kHigh = kFormat.high_bits;
    const std::byte* planes =
        blocks + BlockOf(g) * kFormat.block_bytes() + kFormat.scale_bytes + PartOf(g) * kFormat.group_bytes();
    __m512i codes = _mm512_loadu_si512(planes + line % kLow * 64);
    if constexpr (kLow < 8) {
      const int shift = line / kLow * kLow;
      if (shift != 0) codes = _mm512_srli_epi16(codes, static_cast<unsigned>(shift));
      codes = _mm512_and_si512(codes, _mm512_set1_epi8((1 << kLow) - 1));
    }
    if constexpr (kHigh > 0) {
      const __m512i plane = _mm512_loadu_si512(planes + 64 * (kLow + line % kHigh));
      const int left = kLow - line / kHigh * kHigh;
      const __m512i bits = left > 0   ? _mm512_slli_epi16(plane, static_cast<unsigned>(left))
                           : left < 0 ? _mm512_srli_epi16(plane, static_cast<unsigned>(-left))
                                      : plane;
      codes = _mm512_ternarylogic_epi32(codes, bits, _mm512_set1_epi8(((1 << kHigh) - 1) << kLow), 0xF8);  // a | b & c
    }
    if constexpr (kFormat.has_book) {
      static constexpr CodeBook kBook = CodeBookOf(kType);
      codes = _mm512_shuffle_epi8(
          _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kBook.entries))), codes);
    }
    return codes;
  }

  HR_KERNEL_INLINE __m512i Offset() const { return MinusOffset(kFormat.offset); }

  HR_KERNEL_INLINE __m512 Scale(int64_t g) const {
    if constexpr (kType == DType::kMXFP4) {
      return HalfPowers(head + g * kFormat.head_bytes);
    } else if constexpr (kFormat.head_bytes != 0) {
      return LoadHalves(reinterpret_cast<const uint16_t*>(head + BlockOf(g) * kFormat.head_bytes));
    } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return _mm512_mul_ps(LoadHalves(s.scale), BytesToFloats(s.scales[PartOf(g)]));
    } else {
      return LoadHalves(ScalesAt<ScaleMin16>(g).scale);  // the first piece of every block's scales
    }
  }

  // REQUIRES: kMin or kFactorsAndMins.
  HR_KERNEL_INLINE __m512 Min(int64_t g) const {
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return _mm512_mul_ps(Negative(LoadHalves(s.min_scale)), BytesToFloats(s.mins[PartOf(g)]));
    } else if constexpr (kType == DType::kQ2_K) {
      return Negative(LoadHalves(ScalesAt<ScalesQ2K>(g).min_scale));
    } else {
      return LoadHalves(ScalesAt<ScaleMin16>(g).min);
    }
  }

  // REQUIRES: kFactors or kFactorsAndMins.
  HR_KERNEL_INLINE __m512 Factor(int64_t g, int half) const {
    if constexpr (kType == DType::kQ2_K) {
      const __m512i pairs = BytesToInts(ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)][half]);
      return _mm512_cvtepi32_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(15)));
    } else {
      const auto* p = reinterpret_cast<const __m128i*>(ScalesAt<FactorsQ36K>(g).factors[PartOf(g)][half]);
      return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
    }
  }

  // The integer minimums of both halves, 16 bits each. REQUIRES: kFactorsAndMins.
  HR_KERNEL_INLINE __m512i MinPair(int64_t g) const {
    const auto& pairs = ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)];
    const __m512i low = _mm512_srli_epi32(BytesToInts(pairs[0]), 4), high = _mm512_srli_epi32(BytesToInts(pairs[1]), 4);
    return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
  }
};

// Whether codes cost little to decode again for each tile of rows.
constexpr bool DecodesFast(DType type) { return type == DType::kQ4_1 || type == DType::kQ8_0; }

constexpr bool HasMin(GroupKind kind) { return kind == GroupKind::kMin || kind == GroupKind::kFactorsAndMins; }
constexpr bool HasFactors(GroupKind kind) { return kind == GroupKind::kFactors || kind == GroupKind::kFactorsAndMins; }

// A group in registers; the group's number is ignored.
template <typename Reader>
struct HeldGroup {
  static constexpr GroupKind kKind = Reader::kKind;
  static constexpr bool kHasOffset = Reader::kHasOffset;
  __m512i lines[8], offset, min_pair;
  __m512 scale, min, factors[2];

  HR_KERNEL_INLINE HeldGroup(const Reader& w, int64_t g) : offset(w.Offset()), scale(w.Scale(g)) {
    HR_UNROLL for (int line = 0; line < 8; ++line) lines[line] = w.Line(g, line);
    if constexpr (HasMin(kKind)) min = w.Min(g);
    if constexpr (HasFactors(kKind)) {
      factors[0] = w.Factor(g, 0);
      factors[1] = w.Factor(g, 1);
    }
    if constexpr (kKind == GroupKind::kFactorsAndMins) min_pair = w.MinPair(g);
  }

  HR_KERNEL_INLINE __m512i Line(int64_t, int line) const { return lines[line]; }
  HR_KERNEL_INLINE __m512i Offset() const { return offset; }
  HR_KERNEL_INLINE __m512 Scale(int64_t) const { return scale; }
  HR_KERNEL_INLINE __m512 Min(int64_t) const { return min; }
  HR_KERNEL_INLINE __m512 Factor(int64_t, int half) const { return factors[half]; }
  HR_KERNEL_INLINE __m512i MinPair(int64_t) const { return min_pair; }
};

// A group in memory. What its kind does not have is not written and takes no place in the cache.
struct alignas(64) UnpackedGroup {
  uint8_t lines[8][64];
  float scale[kPanelRows];
  float min[kPanelRows];
  float factors[2][kPanelRows];
  int32_t min_pair[kPanelRows];
};

// Codes of kFactors are stored less their offset when kSigned, for a dot product of signed numbers.
template <typename Reader, bool kSigned = false>
HR_KERNEL_INLINE void UnpackGroup(const Reader& w, int64_t g, UnpackedGroup& to) {
  HR_UNROLL for (int line = 0; line < 8; ++line) {
    __m512i codes = w.Line(g, line);
    if constexpr (kSigned) codes = _mm512_sub_epi8(codes, _mm512_set1_epi8(static_cast<char>(Reader::kFormat.offset)));
    _mm512_store_si512(to.lines[line], codes);
  }
  _mm512_store_ps(to.scale, w.Scale(g));
  if constexpr (HasMin(Reader::kKind)) _mm512_store_ps(to.min, w.Min(g));
  if constexpr (HasFactors(Reader::kKind)) {
    HR_UNROLL for (int half = 0; half < 2; ++half) _mm512_store_ps(to.factors[half], w.Factor(g, half));
  }
  if constexpr (Reader::kKind == GroupKind::kFactorsAndMins) _mm512_store_si512(to.min_pair, w.MinPair(g));
}

template <GroupKind kGroupKind>
struct UnpackedReader {
  static constexpr GroupKind kKind = kGroupKind;
  static constexpr bool kHasOffset = kKind == GroupKind::kPlain || kKind == GroupKind::kFactors;
  const UnpackedGroup* groups;
  int offset;
  const std::byte* next;  // the stream's next bytes, to be prefetched while these are used
  int next_lines;         // a group's share

  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    const char* p = reinterpret_cast<const char*>(next) + g * 64 * next_lines;
    for (int i = 0; i < next_lines; ++i) _mm_prefetch(p + 64 * i, _MM_HINT_T0);
  }
  HR_KERNEL_INLINE __m512i Line(int64_t g, int line) const { return _mm512_load_si512(groups[g].lines[line]); }
  HR_KERNEL_INLINE __m512i Offset() const { return MinusOffset(offset); }
  HR_KERNEL_INLINE __m512 Scale(int64_t g) const { return _mm512_load_ps(groups[g].scale); }
  HR_KERNEL_INLINE __m512 Min(int64_t g) const { return _mm512_load_ps(groups[g].min); }
  HR_KERNEL_INLINE __m512 Factor(int64_t g, int half) const { return _mm512_load_ps(groups[g].factors[half]); }
  HR_KERNEL_INLINE __m512i MinPair(int64_t g) const { return _mm512_load_si512(groups[g].min_pair); }
};

}  // namespace
}  // namespace headrace
