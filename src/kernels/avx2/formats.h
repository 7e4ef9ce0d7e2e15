// Groups of 32 columns of half a packed panel (eight rows) on AVX2: PanelReader decodes them where they lie,
// UnpackedReader reads decoded ones from memory. Both have the same reading functions, for which the tiles of tiles.h
// are written once. All is in an unnamed namespace: the other instruction sets have the same names.
#pragma once

#include "kernels/avx2/lanes.h"
#include "kernels/matmul_tiles.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 3072;

HR_KERNEL_INLINE __m256i BytesToInts(const void* p) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
}
HR_KERNEL_INLINE __m256 BytesToFloats(const void* p) { return _mm256_cvtepi32_ps(BytesToInts(p)); }
HR_KERNEL_INLINE __m256 Negative(__m256 x) { return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f)); }

// HalfE8m0ToFloat.
HR_KERNEL_INLINE __m256 HalfPowers(const void* p) {
  const __m256i e = BytesToInts(p), small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

// Two integers of each row, 16 bits each.
HR_KERNEL_INLINE __m256i PairOf(__m256i low, __m256i high) {
  return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi32(0xFFFF)), _mm256_slli_epi32(high, 16));
}

// Dot products of codes of 8 bits take signed weights (code - offset), all others unsigned codes; those of VNNI, whose
// sums do not saturate, always take codes.
constexpr bool HasSignedLines(int code_max) { return !kVnni && code_max > 127; }
// Lines of products whose sums of two fit 16 bits: 2 * code * 127 each.
constexpr int RunLines(int code_max) {
  int lines = 8;
  while (lines * 2 * code_max * 127 > 32767) lines /= 2;
  return lines;
}
struct HalfPanel;  // half_panel.h

template <DType kType>
struct PanelReader {
  using L = HalfPanel;
  static constexpr PanelFormat kFormat = FormatOf(kType);
  static constexpr GroupKind kKind = kFormat.kind;
  static constexpr bool kSigned = HasSignedLines(kFormat.code_max);
  static constexpr int kRun = kSigned ? 1 : RunLines(kFormat.code_max);
  const std::byte* head;
  const std::byte* blocks;
  int half;

  HR_KERNEL_INLINE PanelReader(const std::byte* panel, int half_panel, int64_t groups)
      : head(panel), blocks(panel + kFormat.HeadBytes(groups)), half(half_panel) {}

  // What a group takes of the stream, scales included.
  static constexpr int kStepBytes = kFormat.block_bytes() / kFormat.block_groups;
  HR_KERNEL_INLINE const std::byte* Ahead(int64_t g) const { return blocks + g * kStepBytes; }
  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    HR_UNROLL for (int i = 0; i < (kStepBytes + 63) / 64; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(Ahead(g) + kPrefetchBytes + 64 * i), _MM_HINT_T0);
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
  HR_KERNEL_INLINE __m256 HalvesAt(const void* p) const {
    return LoadHalves(static_cast<const uint16_t*>(p) + 8 * half);
  }

  // Columns 4 * line ... 4 * line + 3: codes (or entries of the code book), less their offset when kSigned.
  HR_KERNEL_INLINE __m256i Line(int64_t g, int line) const {
    constexpr int kLow = kFormat.low_bits, kHigh = kFormat.high_bits;
    const std::byte* planes = blocks + BlockOf(g) * kFormat.block_bytes() + kFormat.scale_bytes +
                              PartOf(g) * kFormat.group_bytes() + 32 * half;
    __m256i codes = LoadInts(planes + line % kLow * 64);
    if constexpr (kLow < 8) {
      const int shift = line / kLow * kLow;
      if (shift != 0) codes = _mm256_srli_epi16(codes, shift);
      codes = _mm256_and_si256(codes, _mm256_set1_epi8((1 << kLow) - 1));
    }
    if constexpr (kHigh > 0) {
      const __m256i plane = LoadInts(planes + 64 * (kLow + line % kHigh));
      const int left = kLow - line / kHigh * kHigh;
      const __m256i bits = left > 0   ? _mm256_slli_epi16(plane, left)
                           : left < 0 ? _mm256_srli_epi16(plane, -left)
                                      : plane;
      codes = _mm256_or_si256(codes, _mm256_and_si256(bits, _mm256_set1_epi8(((1 << kHigh) - 1) << kLow)));
    }
    if constexpr (kFormat.has_book) {
      static constexpr CodeBook kBook = CodeBookOf(kType);
      const __m128i book = _mm_load_si128(reinterpret_cast<const __m128i*>(kBook.entries));
      codes = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(book), codes);
    }
    // The offset of such codes is 128: taking it away is flipping the top bit.
    if constexpr (kSigned) codes = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
    return codes;
  }

  HR_KERNEL_INLINE static constexpr int Offset() { return kSigned ? 0 : kFormat.offset; }

  HR_KERNEL_INLINE __m256 Scale(int64_t g) const {
    if constexpr (kType == DType::kMXFP4) {
      return HalfPowers(head + g * kFormat.head_bytes + 8 * half);
    } else if constexpr (kFormat.head_bytes != 0) {
      return HalvesAt(head + BlockOf(g) * kFormat.head_bytes);
    } else if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return _mm256_mul_ps(HalvesAt(s.scale), BytesToFloats(s.scales[PartOf(g)] + 8 * half));
    } else {
      return HalvesAt(&ScalesAt<ScaleMin16>(g));  // the first piece of every block's scales
    }
  }

  // REQUIRES: kMin or kFactorsAndMins.
  HR_KERNEL_INLINE __m256 Min(int64_t g) const {
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
      const auto& s = ScalesAt<ScalesQ45K>(g);
      return _mm256_mul_ps(Negative(HalvesAt(s.min_scale)), BytesToFloats(s.mins[PartOf(g)] + 8 * half));
    } else if constexpr (kType == DType::kQ2_K) {
      return Negative(HalvesAt(ScalesAt<ScalesQ2K>(g).min_scale));
    } else {
      return HalvesAt(ScalesAt<ScaleMin16>(g).min);
    }
  }

  // The factors of both halves of the group, 16 bits each. REQUIRES: kFactors or kFactorsAndMins.
  HR_KERNEL_INLINE __m256i FactorPair(int64_t g) const {
    if constexpr (kType == DType::kQ2_K) {
      const auto& pairs = ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)];
      const __m256i both = PairOf(BytesToInts(pairs[0] + 8 * half), BytesToInts(pairs[1] + 8 * half));
      return _mm256_and_si256(both, _mm256_set1_epi16(15));
    } else {
      const auto& factors = ScalesAt<FactorsQ36K>(g).factors[PartOf(g)];
      const auto load = [&](int h) __attribute__((always_inline)) {
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(factors[h] + 8 * half)));
      };
      return PairOf(load(0), load(1));
    }
  }

  // The integer minimums of both halves of the group, 16 bits each. REQUIRES: kFactorsAndMins.
  HR_KERNEL_INLINE __m256i MinPair(int64_t g) const {
    const auto& pairs = ScalesAt<ScalesQ2K>(g).pairs[PartOf(g)];
    return _mm256_srli_epi16(PairOf(BytesToInts(pairs[0] + 8 * half), BytesToInts(pairs[1] + 8 * half)), 4);
  }
};

// A group of a whole panel in memory. What its kind does not have is not written and takes no place in the cache.
struct alignas(64) UnpackedGroup {
  uint8_t lines[8][64];
  float scale[kPanelRows];
  float min[kPanelRows];
  int32_t factor_pair[kPanelRows];
  int32_t min_pair[kPanelRows];
};

template <typename Reader>
HR_KERNEL_INLINE void UnpackHalfGroup(const Reader& w, int64_t g, UnpackedGroup& to) {
  HR_UNROLL for (int line = 0; line < 8; ++line) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to.lines[line] + 32 * w.half), w.Line(g, line));
  }
  const int row = 8 * w.half;
  _mm256_store_ps(to.scale + row, w.Scale(g));
  if constexpr (HasMin(Reader::kKind)) _mm256_store_ps(to.min + row, w.Min(g));
  if constexpr (HasFactors(Reader::kKind)) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to.factor_pair + row), w.FactorPair(g));
  }
  if constexpr (Reader::kKind == GroupKind::kFactorsAndMins) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to.min_pair + row), w.MinPair(g));
  }
}

// Groups of one kind whose codes are at most kCodeMax.
template <GroupKind kGroupKind, int kCodeMax>
struct UnpackedReader {
  using L = HalfPanel;
  static constexpr GroupKind kKind = kGroupKind;
  static constexpr bool kSigned = HasSignedLines(kCodeMax);
  static constexpr int kRun = kSigned ? 1 : RunLines(kCodeMax);
  const UnpackedGroup* groups;
  int offset;
  const std::byte* next;  // the stream's next bytes, to be prefetched while these are used
  int next_lines;         // a group's share
  int half;

  HR_KERNEL_INLINE void Prefetch(int64_t g) const {
    const char* p = reinterpret_cast<const char*>(next) + g * 64 * next_lines;
    for (int i = 0; i < next_lines; ++i) _mm_prefetch(p + 64 * i, _MM_HINT_T0);
  }
  HR_KERNEL_INLINE __m256i Line(int64_t g, int line) const { return LoadInts(groups[g].lines[line] + 32 * half); }
  HR_KERNEL_INLINE int Offset() const { return offset; }
  HR_KERNEL_INLINE __m256 Scale(int64_t g) const { return _mm256_load_ps(groups[g].scale + 8 * half); }
  HR_KERNEL_INLINE __m256 Min(int64_t g) const { return _mm256_load_ps(groups[g].min + 8 * half); }
  HR_KERNEL_INLINE __m256i FactorPair(int64_t g) const { return LoadInts(groups[g].factor_pair + 8 * half); }
  HR_KERNEL_INLINE __m256i MinPair(int64_t g) const { return LoadInts(groups[g].min_pair + 8 * half); }
};

}  // namespace
}  // namespace headrace
