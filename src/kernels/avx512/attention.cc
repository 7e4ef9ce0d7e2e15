// Attention on AVX-512 with VNNI.
#include "kernels/avx512/attention.h"

#include "kernels/attention_tiles.h"
#include "kernels/avx512/lanes.h"

namespace headrace {
namespace {

struct Lanes {
  using F = __m512;
  using I = __m512i;
  static constexpr int kLanes = 16, kQueries = 6, kVectors = 4;

  HR_KERNEL_INLINE static F Zero() { return _mm512_setzero_ps(); }
  HR_KERNEL_INLINE static F Set(float x) { return _mm512_set1_ps(x); }
  HR_KERNEL_INLINE static F Load(const float* p) { return _mm512_loadu_ps(p); }
  HR_KERNEL_INLINE static void Store(float* p, F x) { _mm512_storeu_ps(p, x); }
  HR_KERNEL_INLINE static F Add(F a, F b) { return _mm512_add_ps(a, b); }
  HR_KERNEL_INLINE static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  HR_KERNEL_INLINE static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  HR_KERNEL_INLINE static F Div(F a, F b) { return _mm512_div_ps(a, b); }
  HR_KERNEL_INLINE static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  HR_KERNEL_INLINE static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  HR_KERNEL_INLINE static F Abs(F a) { return _mm512_abs_ps(a); }
  HR_KERNEL_INLINE static F ExpBelow88(F a) { return headrace::ExpBelow88(a); }
  HR_KERNEL_INLINE static float LargestOf(F a) { return _mm512_reduce_max_ps(a); }
  HR_KERNEL_INLINE static float TreeOf(const F* sum) { return Tree(sum[0]); }
  HR_KERNEL_INLINE static F LargestOfEach(const F (&v)[16]) {
    return ReduceEach(v, [](F a, F b) __attribute__((always_inline)) { return _mm512_max_ps(a, b); });
  }
  HR_KERNEL_INLINE static F TreeOfEach(const F (&v)[16][1]) {
    return ReduceEach(v[0], [](F a, F b) __attribute__((always_inline)) { return _mm512_add_ps(a, b); });
  }
  HR_KERNEL_INLINE static F Keep(F x, int begin, int end, F other) {
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(Mask(end) & ~Mask(begin)), x);
  }
  HR_KERNEL_INLINE static F LoadTwice(const float* p) {
    const __m512i each = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(each, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
  }
  HR_KERNEL_INLINE static F SwapPairs(F x) { return _mm512_permute_ps(x, 0xB1); }
  HR_KERNEL_INLINE static F NegateEven(F x) {
    return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), _mm512_set1_epi64(0x80000000)));
  }
  HR_KERNEL_INLINE static I ZeroI() { return _mm512_setzero_si512(); }
  HR_KERNEL_INLINE static I LoadPairs(const int16_t* p) { return _mm512_loadu_si512(p); }
  HR_KERNEL_INLINE static I LoadPairs(const int8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  HR_KERNEL_INLINE static void StorePairs(int16_t* p, I x) { _mm512_storeu_si512(p, x); }
  HR_KERNEL_INLINE static I SplatPair(const int16_t* p) { return Splat4(reinterpret_cast<const int8_t*>(p)); }
  // The intrinsic becomes a multiplication and an addition, for the sake of processors on which those are faster.
  HR_KERNEL_INLINE static void AddDot(I& acc, I a, I b) { asm("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b)); }
  HR_KERNEL_INLINE static F ToFloat(I a) { return _mm512_cvtepi32_ps(a); }
  HR_KERNEL_INLINE static void StoreInterleaved(int16_t* pairs, const int16_t* x, int place) {
    const __m512i wide = _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
    _mm512_mask_storeu_epi16(pairs, place == 0 ? 0x55555555 : 0xAAAAAAAA,
                             place == 0 ? wide : _mm512_slli_epi32(wide, 16));
  }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x)));
  }
  HR_KERNEL_INLINE static void StoreShorts(int16_t* p, F x, F y) {
    const __m512i quarters = _mm512_packs_epi32(_mm512_cvtps_epi32(x), _mm512_cvtps_epi32(y));
    StorePairs(p, _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), quarters));
  }
};

}  // namespace

void Avx512Attend(const Attention& op) { AttendTiles<Lanes>(op); }
void Avx512MergeAttention(const AttentionMerge& op) { MergeTiles<Lanes>(op); }
void Avx512StoreKv(const KvSlot& op) { StoreKvTiles<Lanes>(op); }
void Avx512Rotate(const Rotation& op) { RotateTiles<Lanes>(op); }

}  // namespace headrace
