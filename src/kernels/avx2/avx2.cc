// AVX2 (with FMA and F16C) kernels, equal to the reference to the bit. Intrinsics and plain structs only.
#include "kernels/avx2/attention.h"
#include "kernels/avx2/lanes.h"
#include "kernels/kernel_table.h"
#include "kernels/reference/matmul.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 3072;  // as in the AVX-512 file

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
HR_KERNEL_INLINE int32_t SumOf(const __m256i* q) {
  return SumInts(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
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
  const int32_t sum = SumOf(rest);
  a.rest_scale[entry] = a.scale[at] / 254.0f;
  a.rest_sum[entry] = sum;
  a.rest_scaled_sum[entry] = a.rest_scale[entry] * static_cast<float>(sum);
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
    const int32_t sum = SumOf(q);
    a.scale[at] = largest / 127.0f;
    a.sum[at] = sum;
    a.scaled_sum[at] = a.scale[at] * static_cast<float>(sum);
    a.wide[row * a.groups() + g] = largest * largest > threshold;
  }
}

// ---- matrix product ------------------------------------------------------------------------------------------------

// Rows [first, first + N) of one tile of `width` rows.
struct Tile {
  const int8_t* quants;
  const float* scale;
  const float* scaled_sum;
  const float* values;
  int64_t value_stride;
  int64_t columns;
  int width;
};

// Adds to acc the product of eight output rows (half a panel: half = 0 or 1) and N activation rows.
template <int N>
HR_KERNEL_INLINE void TileQ4_1(const PanelBlockQ4_1* w, int half, int64_t groups, const Tile& x, __m256* acc) {
  const __m256i low_mask = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
  for (int64_t g = 0; g < groups; ++g) {
    const PanelBlockQ4_1& block = w[g];
    const char* ahead = reinterpret_cast<const char*>(&block) + kPrefetchBytes;
    HR_UNROLL for (int i = 0; i < 5; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T0);
    const int8_t* q = x.quants + g * x.width * kGroup;
    // |sum| <= 8 products pairs x 2 x 15 x 127 = 30,480: it fits 16 bits until the end of the group.
    __m256i dot[N];
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_setzero_si256();
    HR_UNROLL for (int line = 0; line < 4; ++line) {
      const __m256i both = LoadInts(block.quants[line] + 32 * half);
      const __m256i low = _mm256_and_si256(both, low_mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_mask);
      HR_UNROLL for (int n = 0; n < N; ++n) {
        dot[n] = _mm256_add_epi16(dot[n], _mm256_maddubs_epi16(low, Splat4(q + n * kGroup + line * 4)));
        dot[n] = _mm256_add_epi16(dot[n], _mm256_maddubs_epi16(high, Splat4(q + n * kGroup + 16 + line * 4)));
      }
    }
    const __m256 scale = LoadHalves(block.scale + 8 * half), min = LoadHalves(block.min + 8 * half);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const int64_t at = g * x.width + n;
      const __m256 sum = _mm256_cvtepi32_ps(_mm256_madd_epi16(dot[n], ones));
      acc[n] = _mm256_fmadd_ps(min, _mm256_set1_ps(x.scaled_sum[at]), acc[n]);
      acc[n] = _mm256_fmadd_ps(sum, _mm256_mul_ps(scale, _mm256_set1_ps(x.scale[at])), acc[n]);
    }
  }
}

template <int N>
HR_KERNEL_INLINE void TileQ8_0(const PanelQ8_0& w, int half, int64_t groups, const Tile& x, __m256* acc) {
  const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8(static_cast<char>(0x80));
  for (int64_t g = 0; g < groups; ++g) {
    const char* ahead = reinterpret_cast<const char*>(w.quants[g]) + kPrefetchBytes;
    HR_UNROLL for (int i = 0; i < 8; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T0);
    const int8_t* q = x.quants + g * x.width * kGroup;
    __m256i dot[N];
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm256_setzero_si256();
    HR_UNROLL for (int line = 0; line < 8; ++line) {
      // |w| as unsigned (128 at most) times x with w's sign: 2 x 128 x 127 = 32,512 fits 16 bits.
      const __m256i weights = _mm256_xor_si256(LoadInts(w.quants[g][line] + 32 * half), offset);
      const __m256i magnitude = _mm256_abs_epi8(weights);
      HR_UNROLL for (int n = 0; n < N; ++n) {
        const __m256i signed_x = _mm256_sign_epi8(Splat4(q + n * kGroup + line * 4), weights);
        dot[n] = _mm256_add_epi32(dot[n], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, signed_x), ones));
      }
    }
    const __m256 scale = LoadHalves(w.scale[g] + 8 * half);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      const __m256 factor = _mm256_mul_ps(scale, _mm256_set1_ps(x.scale[g * x.width + n]));
      acc[n] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[n]), factor, acc[n]);
    }
  }
}

template <int N>
HR_KERNEL_INLINE void TileF32(const float* w, int half, const Tile& x, __m256* acc) {
  for (int64_t k = 0; k < x.columns; ++k) {
    const __m256 weights = _mm256_loadu_ps(w + k * kPanelRows + 8 * half);
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] =
        _mm256_fmadd_ps(weights, _mm256_set1_ps(x.values[n * x.value_stride + k]), acc[n]);
  }
}

HR_KERNEL_INLINE void StoreHalf(const MatMul& op, int64_t m, int64_t row, __m256 acc) {
  const __m256i mask = LaneMask(op.weights.rows - row);
  float* out = op.out + m * op.out_stride + row;
  if (op.accumulate) acc = _mm256_add_ps(_mm256_maskload_ps(out, mask), acc);
  _mm256_maskstore_ps(out, mask, acc);
}

template <int N>
void SubTile(const MatMul& op, int64_t panel, int64_t first_row, const Tile& x) {
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const int64_t groups = op.activations.groups();
  for (int half = 0; half < 2; ++half) {
    const int64_t row = panel * kPanelRows + 8 * half;
    if (row >= op.weights.rows) return;
    __m256 acc[N];
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm256_setzero_ps();
    if (op.weights.dtype == DType::kQ4_1) {
      TileQ4_1<N>(reinterpret_cast<const PanelBlockQ4_1*>(w), half, groups, x, acc);
    } else if (op.weights.dtype == DType::kQ8_0) {
      TileQ8_0<N>(PanelQ8_0At(w, groups), half, groups, x, acc);
    } else {
      TileF32<N>(reinterpret_cast<const float*>(w), half, x, acc);
    }
    HR_UNROLL for (int n = 0; n < N; ++n) StoreHalf(op, first_row + n, row, acc[n]);
  }
}

void OneTile(const MatMul& op, int64_t panel, int64_t t) {
  const Activations& a = op.activations;
  const int64_t at = t * kTileColumns * a.groups();
  const int width = a.TileWidth(t);
  for (int first = 0; first < width; first += 4) {
    const Tile x{a.quants + (at + first) * kGroup,
                 a.scale + at + first,
                 a.scaled_sum + at + first,
                 a.values + (t * kTileColumns + first) * a.value_stride,
                 a.value_stride,
                 a.columns,
                 width};
    const int64_t row = t * kTileColumns + first;
    switch (width - first) {
      case 1:
        SubTile<1>(op, panel, row, x);
        break;
      case 2:
        SubTile<2>(op, panel, row, x);
        break;
      case 3:
        SubTile<3>(op, panel, row, x);
        break;
      default:
        SubTile<4>(op, panel, row, x);
        break;
    }
  }
}

// Adds the rest of one chunk of rows to eight output rows that the tiles have stored: one group and one activation row
// are a tile of width 1.
void AddRest(const MatMul& op, int64_t panel, int half, int64_t chunk) {
  alignas(32) float rest[kWideChunkRows][8];
  const Activations& a = op.activations;
  const int64_t first_row = chunk * kWideChunkRows, groups = a.groups();
  const int64_t rows = a.rows - first_row < kWideChunkRows ? a.rows - first_row : kWideChunkRows;
  for (int64_t r = 0; r < rows; ++r) _mm256_store_ps(rest[r], _mm256_setzero_ps());
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const int32_t* starts = a.rest_first + chunk * (groups + 1);
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t e = starts[g]; e < starts[g + 1]; ++e) {
      float* sum = rest[a.rest_row[e] - first_row];
      __m256 acc[1] = {_mm256_load_ps(sum)};
      const Tile x{a.rest_quants + e * kGroup, a.rest_scale + e, a.rest_scaled_sum + e, nullptr, 0, 0, 1};
      if (op.weights.dtype == DType::kQ4_1) {
        TileQ4_1<1>(reinterpret_cast<const PanelBlockQ4_1*>(w) + g, half, 1, x, acc);
      } else {
        const PanelQ8_0 p = PanelQ8_0At(w, groups);
        TileQ8_0<1>({p.scale + g, p.quants + g}, half, 1, x, acc);
      }
      _mm256_store_ps(sum, acc[0]);
    }
  }
  const int64_t row = panel * kPanelRows + 8 * half;
  const __m256i mask = LaneMask(op.weights.rows - row);
  for (int64_t r = 0; r < rows; ++r) {
    if (a.row_is_wide[first_row + r] == 0) continue;
    float* out = op.out + (first_row + r) * op.out_stride + row;
    _mm256_maskstore_ps(out, mask, _mm256_add_ps(_mm256_maskload_ps(out, mask), _mm256_load_ps(rest[r])));
  }
}

void MatMulPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (op.weights.row_bytes != 0) return ReferenceMatMul(op, panel_begin, panel_end);
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    for (int64_t t = 0; t < op.activations.tiles(); ++t) OneTile(op, p, t);
    if (op.weights.dtype == DType::kF32) continue;
    for (int64_t chunk = 0; chunk < op.activations.chunks(); ++chunk) {
      for (int half = 0; half < 2; ++half) AddRest(op, p, half, chunk);
    }
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

}  // namespace

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable{"avx2",  QuantizeRow, QuantizeRest, MatMulPanels, nullptr, RmsNorm,
                                      SiluMul, Avx2Attend,  Avx2Rotate,   Avx2StoreKv,  RowMax,  ExpRow};
  return kTable;
}

}  // namespace headrace
