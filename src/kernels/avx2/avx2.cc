// The AVX2 (with FMA and F16C) table, activations and rows, and the table of AVX-VNNI; equal to the reference to the
// bit. Intrinsics and plain structs only.
#include "kernels/avx2/attention.h"
#include "kernels/avx2/lanes.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avxvnni/avxvnni.h"
#include "kernels/kernel_table.h"

namespace headrace {
namespace {

// ---- activations ---------------------------------------------------------------------------------------------------

HR_KERNEL_INLINE int32_t SumInts(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

HR_KERNEL_INLINE void StoreBytes(const __m256i* q, int8_t* out) {
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                      _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
HR_KERNEL_INLINE float LargestMagnitude(const float* x) {
  const __m256 positive = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 top = _mm256_setzero_ps();
  HR_UNROLL for (int i = 0; i < 4; ++i) top = _mm256_max_ps(top, _mm256_and_ps(_mm256_loadu_ps(x + 8 * i), positive));
  return Largest(top);
}

// What the first plane leaves over, x - scale * q, in steps of scale / 254.
void QuantizeRest(const Activations& a, int64_t row, int64_t group, int64_t entry) {
  const float* x = a.values + row * a.value_stride + group * kGroup;
  const int64_t at = a.GroupIndex(row, group);
  const float largest = LargestMagnitude(x);
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  const __m256 step = _mm256_set1_ps(inverse * 254.0f), scale = _mm256_set1_ps(a.scale[at]),
               most = _mm256_set1_ps(127.0f);
  __m256i rest[4];
  HR_UNROLL for (int i = 0; i < 4; ++i) {
    const __m256i q =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(a.quants + at * kGroup + 8 * i)));
    const __m256 left = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(q), scale, _mm256_loadu_ps(x + 8 * i));
    const __m256 steps = _mm256_round_ps(_mm256_mul_ps(left, step), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    rest[i] = _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(steps, most), _mm256_sub_ps(_mm256_setzero_ps(), most)));
  }
  StoreBytes(rest, a.rest_quants + entry * kGroup);
  const int32_t first = SumInts(_mm256_add_epi32(rest[0], rest[1]));
  const int32_t second = SumInts(_mm256_add_epi32(rest[2], rest[3]));
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = PackHalfSums(first, second);
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(first + second);
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
    __m256i q[4];
    HR_UNROLL for (int i = 0; i < 4; ++i) q[i] =
        _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    StoreBytes(q, a.quants + at * kGroup);
    const int32_t first = SumInts(_mm256_add_epi32(q[0], q[1])), second = SumInts(_mm256_add_epi32(q[2], q[3]));
    a.scale[at] = largest / 127.0f;
    a.sum[at] = PackHalfSums(first, second);
    a.scaled_sum[at] = a.scale[at] * static_cast<float>(first + second);
    a.wide[row * a.groups() + g] = largest * largest > threshold;
  }
}

// ---- rows ----------------------------------------------------------------------------------------------------------

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  __m256 low = _mm256_setzero_ps(), high = low;
  for (int64_t i = 0; i < n; i += 16) {
    const __m256 a = _mm256_maskload_ps(x + i, LaneMask(n - i)), b = _mm256_maskload_ps(x + i + 8, LaneMask(n - i - 8));
    low = _mm256_fmadd_ps(a, a, low);
    high = _mm256_fmadd_ps(b, b, high);
  }
  const float mean = Tree(low, high) / static_cast<float>(n) + eps;
  const __m256 scale = _mm256_set1_ps(1.0f / __builtin_sqrtf(mean));
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = LaneMask(n - i);
    const __m256 scaled = _mm256_mul_ps(_mm256_maskload_ps(x + i, mask), scale);
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(scaled, _mm256_maskload_ps(weight + i, mask)));
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = LaneMask(n - i);
    const __m256 x = _mm256_maskload_ps(gate + i, mask);
    const __m256 silu = _mm256_div_ps(x, _mm256_add_ps(one, Exp8(_mm256_xor_ps(x, sign))));
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(silu, _mm256_maskload_ps(up + i, mask)));
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
  const __m256 linear = _mm256_set1_ps(kGeluLinear), cubic = _mm256_set1_ps(kGeluCubic);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = LaneMask(n - i);
    const __m256 x = _mm256_maskload_ps(gate + i, mask);
    const __m256 u2 = _mm256_mul_ps(x, _mm256_fmadd_ps(_mm256_mul_ps(x, x), cubic, linear));
    const __m256 gelu = _mm256_div_ps(x, _mm256_add_ps(one, Exp8(_mm256_xor_ps(u2, sign))));
    _mm256_maskstore_ps(out + i, mask, _mm256_mul_ps(gelu, _mm256_maskload_ps(up + i, mask)));
  }
}

float RowMax(const float* x, int64_t n) {
  __m256 top = _mm256_set1_ps(x[0]);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(x + i));
  float largest = Largest(top);
  for (; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void ExpRow(const float* x, int64_t n, float max, float inverse_temperature, float* out) {
  const __m256 top = _mm256_set1_ps(max), factor = _mm256_set1_ps(inverse_temperature);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256i mask = LaneMask(n - i);
    const __m256 v = _mm256_sub_ps(_mm256_maskload_ps(x + i, mask), top);
    _mm256_maskstore_ps(out + i, mask, Exp8(_mm256_mul_ps(v, factor)));
  }
}

using MatMulFn = void (*)(const MatMul&, int64_t, int64_t);
using AttendFn = void (*)(const Attention&);
constexpr KernelTable TableOf(const char* name, MatMulFn matmul, AttendFn attend) {
  return {name,   QuantizeRow,        QuantizeRest, matmul,      nullptr, RmsNorm, SiluMul,       GeluMul,
          attend, Avx2MergeAttention, Avx2Rotate,   Avx2StoreKv, RowMax,  ExpRow,  &kAvx2Sampling};
}

}  // namespace

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable = TableOf("avx2", Avx2MatMul, Avx2Attend);
  return kTable;
}

const KernelTable& AvxVnniKernels() {
  static constexpr KernelTable kTable = TableOf("avxvnni", AvxVnniMatMul, AvxVnniAttend);
  return kTable;
}

}  // namespace headrace
