// The lanes of attention_tiles.h on AVX2. In an unnamed namespace: avx2/ and avxvnni/ compile them each for its own
// instructions.
#pragma once

#include "kernels/attention_tiles.h"
#include "kernels/avx2/lanes.h"

namespace headrace {
namespace {

struct Lanes {
  using F = __m256;
  using I = __m256i;
  static constexpr int kLanes = 8, kQueries = 3, kVectors = 4;

  HR_KERNEL_INLINE static F Zero() { return _mm256_setzero_ps(); }
  HR_KERNEL_INLINE static F Set(float x) { return _mm256_set1_ps(x); }
  HR_KERNEL_INLINE static F Load(const float* p) { return _mm256_loadu_ps(p); }
  HR_KERNEL_INLINE static void Store(float* p, F x) { _mm256_storeu_ps(p, x); }
  HR_KERNEL_INLINE static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  HR_KERNEL_INLINE static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  HR_KERNEL_INLINE static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  HR_KERNEL_INLINE static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  HR_KERNEL_INLINE static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  HR_KERNEL_INLINE static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  HR_KERNEL_INLINE static F Abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  HR_KERNEL_INLINE static F ExpBelow88(F a) { return headrace::ExpBelow88(a); }
  HR_KERNEL_INLINE static float LargestOf(F a) { return Largest(a); }
  HR_KERNEL_INLINE static float TreeOf(const F* sum) { return Tree(sum[0], sum[1]); }
  HR_KERNEL_INLINE static F Keep(F x, int begin, int end, F other) {
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(_mm256_andnot_si256(LaneMask(begin), LaneMask(end))));
  }
  HR_KERNEL_INLINE static F LoadTwice(const float* p) {
    const __m256i each = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), each);
  }
  HR_KERNEL_INLINE static F SwapPairs(F x) { return _mm256_permute_ps(x, 0xB1); }
  HR_KERNEL_INLINE static F NegateEven(F x) {
    return _mm256_xor_ps(x, _mm256_castsi256_ps(_mm256_set1_epi64x(0x80000000)));
  }
  HR_KERNEL_INLINE static I ZeroI() { return _mm256_setzero_si256(); }
  HR_KERNEL_INLINE static I LoadPairs(const int16_t* p) { return LoadInts(p); }
  HR_KERNEL_INLINE static I LoadPairs(const int8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  HR_KERNEL_INLINE static void StorePairs(int16_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x); }
  HR_KERNEL_INLINE static I SplatPair(const int16_t* p) { return Splat4(reinterpret_cast<const int8_t*>(p)); }
  HR_KERNEL_INLINE static void AddDot(I& acc, I a, I b) { AddDot16(acc, a, b); }
  HR_KERNEL_INLINE static F ToFloat(I a) { return _mm256_cvtepi32_ps(a); }
  HR_KERNEL_INLINE static void StoreInterleaved(int16_t* pairs, const int16_t* x, int place) {
    const __m256i wide = _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    const __m256i old = LoadInts(pairs);
    StorePairs(pairs, place == 0 ? _mm256_blend_epi16(old, wide, 0x55)
                                 : _mm256_blend_epi16(old, _mm256_slli_epi32(wide, 16), 0xAA));
  }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x) {
    const __m256i ints = _mm256_cvtps_epi32(x);
    const __m128i shorts = _mm_packs_epi32(_mm256_castsi256_si128(ints), _mm256_extracti128_si256(ints, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), shorts);
  }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x, F y) {
    const __m256i halves = _mm256_packs_epi32(_mm256_cvtps_epi32(x), _mm256_cvtps_epi32(y));
    StorePairs(p, _mm256_permute4x64_epi64(halves, 0xD8));
  }
};

}  // namespace
}  // namespace headrace
