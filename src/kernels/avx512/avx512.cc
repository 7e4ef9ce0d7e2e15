// The AVX-512 (F, BW, DQ, VL, VNNI) table and rows, equal to the reference to the bit. Intrinsics and
// plain structs only.
#include <immintrin.h>

#include "kernels/avx512/activations.h"
#include "kernels/avx512/attention.h"
#include "kernels/avx512/lanes.h"
#include "kernels/avx512/matmul.h"
#include "kernels/canonical.h"
#include "kernels/kernel_table.h"

namespace headrace {
namespace {

// ---- rows ----------------------------------------------------------------------------------------------------------

void RmsNorm(const float* x, const float* weight, float eps, int64_t n, float* out) {
  __m512 lanes = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_maskz_loadu_ps(Mask(n - i), x + i);
    lanes = _mm512_fmadd_ps(v, v, lanes);
  }
  const float mean = Tree(lanes) / static_cast<float>(n) + eps;
  const __m512 scale = _mm512_set1_ps(1.0f / __builtin_sqrtf(mean));
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = Mask(n - i);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), scale);
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(mask, weight + i)));
  }
}

void SiluMul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = Mask(n - i);
    const __m512 silu = Silu16(_mm512_maskz_loadu_ps(mask, gate + i));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + i)));
  }
}

void GeluMul(const float* gate, const float* up, int64_t n, float* out) {
  const __m512 sign = _mm512_set1_ps(-0.0f), one = _mm512_set1_ps(1.0f);
  const __m512 linear = _mm512_set1_ps(kGeluLinear), cubic = _mm512_set1_ps(kGeluCubic);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = Mask(n - i);
    const __m512 x = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 u2 = _mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), cubic, linear));
    const __m512 gelu = _mm512_div_ps(x, _mm512_add_ps(one, Exp16(_mm512_xor_ps(u2, sign))));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(gelu, _mm512_maskz_loadu_ps(mask, up + i)));
  }
}

float RowMax(const float* x, int64_t n) {
  __m512 a = _mm512_set1_ps(x[0]), b = a;
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    a = _mm512_max_ps(a, _mm512_loadu_ps(x + i));
    b = _mm512_max_ps(b, _mm512_loadu_ps(x + i + 16));
  }
  for (; i < n; i += 16) a = _mm512_mask_max_ps(a, Mask(n - i), a, _mm512_maskz_loadu_ps(Mask(n - i), x + i));
  return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}

void ExpRow(const float* x, int64_t n, float max, float inverse_temperature, float* out) {
  const __m512 top = _mm512_set1_ps(max), factor = _mm512_set1_ps(inverse_temperature);
  for (int64_t i = 0; i < n; i += 16) {
    const __mmask16 mask = Mask(n - i);
    const __m512 v = _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), top);
    _mm512_mask_storeu_ps(out + i, mask, Exp16(_mm512_mul_ps(v, factor)));
  }
}

}  // namespace

const KernelTable& Avx512Kernels() {
  static constexpr KernelTable kTable{
      "avx512",     Avx512QuantizeRow,    Avx512QuantizeRest, Avx512MatMul,  nullptr, RmsNorm, SiluMul,         GeluMul,
      Avx512Attend, Avx512MergeAttention, Avx512Rotate,       Avx512StoreKv, RowMax,  ExpRow,  &kAvx512Sampling};
  return kTable;
}

}  // namespace headrace
