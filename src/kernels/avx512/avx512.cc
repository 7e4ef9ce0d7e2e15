// AVX-512 (F, BW, DQ, VL, VNNI) kernels, equal to the reference to the bit. Intrinsics and plain structs only.
#include <immintrin.h>

#include "kernels/avx512/activations.h"
#include "kernels/avx512/attention.h"
#include "kernels/avx512/lanes.h"
#include "kernels/canonical.h"
#include "kernels/kernel_table.h"
#include "kernels/reference/matmul.h"

namespace headrace {
namespace {

// Bytes that a weight stream is prefetched ahead: one memory latency (about 100 ns) at 15 GB/s a core is 1.5 KB; twice
// that.
constexpr int kPrefetchBytes = 3072;

HR_KERNEL_INLINE __m512i Splat4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// ---- matrix product ------------------------------------------------------------------------------------------------

// One tile of N activation rows at group 0 of its storage.
struct Tile {
  const int8_t* quants;
  const float* scale;
  const float* scaled_sum;
  const int32_t* sum;
  const float* values;
  int64_t value_stride;
  int64_t columns;
  bool prefetch;  // of the weights: by the first tile of a panel only, the others find them in the cache
};

template <int N>
HR_KERNEL_INLINE void TileQ4_1(const PanelBlockQ4_1* w, int64_t groups, const Tile& x, __m512* acc) {
  const __m512i low_mask = _mm512_set1_epi8(15);
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    const PanelBlockQ4_1& block = w[g];
    if (x.prefetch) {
      const char* ahead = reinterpret_cast<const char*>(&block) + kPrefetchBytes;
      HR_UNROLL for (int i = 0; i < 5; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T0);
    }
    const int8_t* q = x.quants + g * N * kGroup;
    __m512i dot[N];
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm512_setzero_si512();
    HR_UNROLL for (int line = 0; line < 4; ++line) {
      const __m512i both = _mm512_loadu_si512(block.quants[line]);
      const __m512i low = _mm512_and_si512(both, low_mask);
      const __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_mask);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
          _mm512_dpbusd_epi32(dot[n], low, Splat4(q + n * kGroup + line * 4));
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
          _mm512_dpbusd_epi32(dot[n], high, Splat4(q + n * kGroup + 16 + line * 4));
    }
    const __m512 scale = LoadHalves(block.scale), min = LoadHalves(block.min);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      acc[n] = _mm512_fmadd_ps(min, _mm512_set1_ps(x.scaled_sum[g * N + n]), acc[n]);
      acc[n] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[n]), _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[g * N + n])), acc[n]);
    }
  }
}

// Two panels at once for a single row: four independent chains hide the latency of the dot product.
HR_KERNEL_INLINE void PairQ4_1(const PanelBlockQ4_1* w0, const PanelBlockQ4_1* w1, int64_t groups, const Tile& x,
                               __m512* acc) {
  const __m512i low_mask = _mm512_set1_epi8(15);
  acc[0] = acc[1] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    const PanelBlockQ4_1 *a = w0 + g, *b = w1 + g;
    HR_UNROLL for (int i = 0; i < 5; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(a) + kPrefetchBytes + 64 * i, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(b) + kPrefetchBytes + 64 * i, _MM_HINT_T0);
    }
    const int8_t* q = x.quants + g * kGroup;
    __m512i a_low = _mm512_setzero_si512(), a_high = a_low, b_low = a_low, b_high = a_low;
    HR_UNROLL for (int line = 0; line < 4; ++line) {
      const __m512i va = _mm512_loadu_si512(a->quants[line]), vb = _mm512_loadu_si512(b->quants[line]);
      const __m512i x_low = Splat4(q + line * 4), x_high = Splat4(q + 16 + line * 4);
      a_low = _mm512_dpbusd_epi32(a_low, _mm512_and_si512(va, low_mask), x_low);
      b_low = _mm512_dpbusd_epi32(b_low, _mm512_and_si512(vb, low_mask), x_low);
      a_high = _mm512_dpbusd_epi32(a_high, _mm512_and_si512(_mm512_srli_epi16(va, 4), low_mask), x_high);
      b_high = _mm512_dpbusd_epi32(b_high, _mm512_and_si512(_mm512_srli_epi16(vb, 4), low_mask), x_high);
    }
    const __m512 xs = _mm512_set1_ps(x.scale[g]), xsum = _mm512_set1_ps(x.scaled_sum[g]);
    acc[0] = _mm512_fmadd_ps(LoadHalves(a->min), xsum, acc[0]);
    acc[1] = _mm512_fmadd_ps(LoadHalves(b->min), xsum, acc[1]);
    acc[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(a_low, a_high)),
                             _mm512_mul_ps(LoadHalves(a->scale), xs), acc[0]);
    acc[1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(b_low, b_high)),
                             _mm512_mul_ps(LoadHalves(b->scale), xs), acc[1]);
  }
}

template <int N>
HR_KERNEL_INLINE void TileQ8_0(const PanelQ8_0& w, int64_t groups, const Tile& x, __m512* acc) {
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    if (x.prefetch) {
      const char* ahead = reinterpret_cast<const char*>(w.quants[g]) + kPrefetchBytes;
      HR_UNROLL for (int i = 0; i < 8; ++i) _mm_prefetch(ahead + 64 * i, _MM_HINT_T0);
    }
    const int8_t* q = x.quants + g * N * kGroup;
    __m512i dot[N];
    // The stored quants are 128 too large: start at -128 * sum of the activations.
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm512_set1_epi32(-128 * x.sum[g * N + n]);
    HR_UNROLL for (int line = 0; line < 8; ++line) {
      const __m512i quants = _mm512_loadu_si512(w.quants[g][line]);
      HR_UNROLL for (int n = 0; n < N; ++n) dot[n] =
          _mm512_dpbusd_epi32(dot[n], quants, Splat4(q + n * kGroup + line * 4));
    }
    const __m512 scale = LoadHalves(w.scale[g]);
    HR_UNROLL for (int n = 0; n < N; ++n) {
      acc[n] =
          _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[n]), _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[g * N + n])), acc[n]);
    }
  }
}

template <int N>
HR_KERNEL_INLINE void TileF32(const float* w, int64_t columns, const Tile& x, __m512* acc) {
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_setzero_ps();
  for (int64_t k = 0; k < columns; ++k) {
    const __m512 weights = _mm512_loadu_ps(w + k * kPanelRows);
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] =
        _mm512_fmadd_ps(weights, _mm512_set1_ps(x.values[n * x.value_stride + k]), acc[n]);
  }
}

HR_KERNEL_INLINE void StorePanel(const MatMul& op, int64_t m, int64_t panel, __m512 acc) {
  const int64_t row = panel * kPanelRows;
  const __mmask16 mask = Mask(op.weights.rows - row);
  float* out = op.out + m * op.out_stride + row;
  if (op.accumulate) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), acc);
  _mm512_mask_storeu_ps(out, mask, acc);
}

template <int N>
void OneTile(const MatMul& op, int64_t panel, int64_t first_row, const Tile& x) {
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const int64_t groups = op.activations.groups();
  __m512 acc[N];
  if (op.weights.dtype == DType::kQ4_1) {
    TileQ4_1<N>(reinterpret_cast<const PanelBlockQ4_1*>(w), groups, x, acc);
  } else if (op.weights.dtype == DType::kQ8_0) {
    TileQ8_0<N>(PanelQ8_0At(w, groups), groups, x, acc);
  } else {
    TileF32<N>(reinterpret_cast<const float*>(w), x.columns, x, acc);
  }
  HR_UNROLL for (int n = 0; n < N; ++n) StorePanel(op, first_row + n, panel, acc[n]);
}

using TileFn = void (*)(const MatMul&, int64_t, int64_t, const Tile&);
constexpr TileFn kTiles[kTileColumns] = {OneTile<1>, OneTile<2>, OneTile<3>, OneTile<4>,  OneTile<5>,  OneTile<6>,
                                         OneTile<7>, OneTile<8>, OneTile<9>, OneTile<10>, OneTile<11>, OneTile<12>};

Tile TileAt(const Activations& a, int64_t tile) {
  const int64_t at = tile * kTileColumns * a.groups();
  return Tile{a.quants + at * kGroup,
              a.scale + at,
              a.scaled_sum + at,
              a.sum + at,
              a.values + tile * kTileColumns * a.value_stride,
              a.value_stride,
              a.columns,
              tile == 0};
}

// ---- second planes of wide groups

// One group's weights in registers and N entries of it, added to their rows' sums.
struct RestQ4_1 {
  __m512i low[4], high[4];
  __m512 scale, min;

  HR_KERNEL_INLINE explicit RestQ4_1(const PanelBlockQ4_1& block) {
    const __m512i low_mask = _mm512_set1_epi8(15);
    HR_UNROLL for (int line = 0; line < 4; ++line) {
      const __m512i both = _mm512_loadu_si512(block.quants[line]);
      low[line] = _mm512_and_si512(both, low_mask);
      high[line] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low_mask);
    }
    scale = LoadHalves(block.scale);
    min = LoadHalves(block.min);
  }

  template <int N>
  HR_KERNEL_INLINE void Add(const Activations& a, int64_t e, int64_t first_row, float (*rest)[kPanelRows]) const {
    const int8_t* q = a.rest_quants + e * kGroup;
    __m512i even[N], odd[N];
    HR_UNROLL for (int n = 0; n < N; ++n) even[n] = odd[n] = _mm512_setzero_si512();
    HR_UNROLL for (int line = 0; line < 4; ++line) {
      HR_UNROLL for (int n = 0; n < N; ++n) {
        even[n] = _mm512_dpbusd_epi32(even[n], low[line], Splat4(q + n * kGroup + line * 4));
        odd[n] = _mm512_dpbusd_epi32(odd[n], high[line], Splat4(q + n * kGroup + 16 + line * 4));
      }
    }
    HR_UNROLL for (int n = 0; n < N; ++n) {
      float* sum = rest[a.rest_row[e + n] - first_row];
      const __m512 acc = _mm512_fmadd_ps(min, _mm512_set1_ps(a.rest_scaled_sum[e + n]), _mm512_load_ps(sum));
      const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(a.rest_scale[e + n]));
      _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even[n], odd[n])), factor, acc));
    }
  }
};

struct RestQ8_0 {
  __m512i quants[8];
  __m512 scale;

  HR_KERNEL_INLINE RestQ8_0(const PanelQ8_0& panel, int64_t g) {
    HR_UNROLL for (int line = 0; line < 8; ++line) quants[line] = _mm512_loadu_si512(panel.quants[g][line]);
    scale = LoadHalves(panel.scale[g]);
  }

  template <int N>
  HR_KERNEL_INLINE void Add(const Activations& a, int64_t e, int64_t first_row, float (*rest)[kPanelRows]) const {
    const int8_t* q = a.rest_quants + e * kGroup;
    __m512i dot[N];
    HR_UNROLL for (int n = 0; n < N; ++n) dot[n] = _mm512_set1_epi32(-128 * a.rest_sum[e + n]);
    HR_UNROLL for (int line = 0; line < 8; ++line) {
      HR_UNROLL for (int n = 0; n < N; ++n) {
        dot[n] = _mm512_dpbusd_epi32(dot[n], quants[line], Splat4(q + n * kGroup + line * 4));
      }
    }
    HR_UNROLL for (int n = 0; n < N; ++n) {
      float* sum = rest[a.rest_row[e + n] - first_row];
      const __m512 factor = _mm512_mul_ps(scale, _mm512_set1_ps(a.rest_scale[e + n]));
      _mm512_store_ps(sum, _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[n]), factor, _mm512_load_ps(sum)));
    }
  }
};

// Four entries at a time: their chains hide the latency of the dot product.
template <typename Rest>
HR_KERNEL_INLINE void AddRestGroup(const Rest& weights, const Activations& a, int64_t begin, int64_t end,
                                   int64_t first_row, float (*rest)[kPanelRows]) {
  int64_t e = begin;
  for (; e + 4 <= end; e += 4) weights.template Add<4>(a, e, first_row, rest);
  for (; e < end; ++e) weights.template Add<1>(a, e, first_row, rest);
}

// Adds the rest of one chunk of rows to what the tiles of this panel have stored.
void AddRest(const MatMul& op, int64_t panel, int64_t chunk) {
  alignas(64) float rest[kWideChunkRows][kPanelRows];
  const Activations& a = op.activations;
  const int64_t first_row = chunk * kWideChunkRows, groups = a.groups();
  const int64_t rows = a.rows - first_row < kWideChunkRows ? a.rows - first_row : kWideChunkRows;
  for (int64_t r = 0; r < rows; ++r) _mm512_store_ps(rest[r], _mm512_setzero_ps());
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const int32_t* starts = a.rest_first + chunk * (groups + 1);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = starts[g], end = starts[g + 1];
    if (begin == end) continue;
    if (op.weights.dtype == DType::kQ4_1) {
      AddRestGroup(RestQ4_1(reinterpret_cast<const PanelBlockQ4_1*>(w)[g]), a, begin, end, first_row, rest);
    } else {
      AddRestGroup(RestQ8_0(PanelQ8_0At(w, groups), g), a, begin, end, first_row, rest);
    }
  }
  const __mmask16 mask = Mask(op.weights.rows - panel * kPanelRows);
  for (int64_t r = 0; r < rows; ++r) {
    if (a.row_is_wide[first_row + r] == 0) continue;
    float* out = op.out + (first_row + r) * op.out_stride + panel * kPanelRows;
    _mm512_mask_storeu_ps(out, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), _mm512_load_ps(rest[r])));
  }
}

void AllRest(const MatMul& op, int64_t panel) {
  if (op.weights.dtype == DType::kF32) return;
  for (int64_t chunk = 0; chunk < op.activations.chunks(); ++chunk) AddRest(op, panel, chunk);
}

void SingleRowQ4_1(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const Tile x = TileAt(op.activations, 0);
  int64_t p = panel_begin;
  for (; p + 1 < panel_end; p += 2) {
    const auto* w = op.weights.data + p * op.weights.panel_bytes;
    __m512 acc[2];
    PairQ4_1(reinterpret_cast<const PanelBlockQ4_1*>(w),
             reinterpret_cast<const PanelBlockQ4_1*>(w + op.weights.panel_bytes), op.activations.groups(), x, acc);
    StorePanel(op, 0, p, acc[0]);
    StorePanel(op, 0, p + 1, acc[1]);
    AllRest(op, p);
    AllRest(op, p + 1);
  }
  if (p < panel_end) {
    OneTile<1>(op, p, 0, x);
    AllRest(op, p);
  }
}

void MatMulPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (op.weights.row_bytes != 0) return ReferenceMatMul(op, panel_begin, panel_end);
  if (op.activations.rows == 1 && op.weights.dtype == DType::kQ4_1) return SingleRowQ4_1(op, panel_begin, panel_end);
  const int64_t tiles = op.activations.tiles();
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    for (int64_t t = 0; t < tiles; ++t) {
      kTiles[op.activations.TileWidth(t) - 1](op, p, t * kTileColumns, TileAt(op.activations, t));
    }
    AllRest(op, p);
  }
}

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
  static constexpr KernelTable kTable{"avx512", Avx512QuantizeRow, Avx512QuantizeRest, MatMulPanels,  nullptr, RmsNorm,
                                      SiluMul,  Avx512Attend,      Avx512Rotate,       Avx512StoreKv, RowMax,  ExpRow};
  return kTable;
}

}  // namespace headrace
