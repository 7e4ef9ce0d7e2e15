// AMX matrix product: the integer dots of a tile of activation rows and two panels come from TDPBSUD, the float part is
// that of avx512/, operation by operation. Everything else is avx512/'s. Intrinsics and plain structs only.
#include <immintrin.h>

#include "kernels/avx512/lanes.h"
#include "kernels/kernel_table.h"

namespace headrace {
namespace {

constexpr int kPanels = 2;        // panels of one pass: they share the loads of the activations
constexpr int kBlockGroups = 24;  // groups whose weights wait unpacked in the first-level cache (24 KiB for two panels)
constexpr int kRestBatch = kTileColumns;
// Below it the dot products of avx512/ are faster: a tile costs its configuration and a trip through memory.
constexpr int64_t kAmxRowsMin = 32;

// Tile registers. 0: a tile of activation rows; 1, 2 and 3, 4: dots with two panels, in turn; 6, 7: 32 columns of the
// panels. A narrower tile of activations is computed as a full one: rows beyond it are read and not used.

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct Scratch {
  alignas(64) uint8_t weights[kPanels][kBlockGroups][8][64];
  alignas(64) float scale[kBlockGroups][kPanels][kPanelRows];
  alignas(64) float min[kBlockGroups][kPanels][kPanelRows];
  alignas(64) int32_t dots[2][kPanels][kTileColumns][kPanelRows];
  alignas(64) float sums[kWideChunkRows][kPanels][kPanelRows];
  alignas(64) float rest[kWideChunkRows][kPanels][kPanelRows];
};

// Groups [first, first + count) of two panels as the dot product reads them.
struct WeightBlock {
  const uint8_t* lines[kPanels];  // [group][8][64]
  int64_t first;
  int count;
};

// Rows of activations with their scalars, at the block's first group.
struct Rows {
  const int8_t* quants;
  const float* scale;
  const float* scaled_sum;
  const int32_t* sum;
};

void Configure() {
  TileConfig config;
  const auto set = [&](int tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  set(0, kTileColumns, kGroup);
  for (int dots = 1; dots < 5; ++dots) set(dots, kTileColumns, 64);
  for (int weights = 6; weights < 8; ++weights) set(weights, kGroup / 4, 64);
  _tile_loadconfig(&config);
}

// Starts the dots of 12 rows and group g of two panels; keeps those that were started before in memory. Macros, since
// the intrinsics want literal registers. A product takes long: whatever is kept should have been started one step
// earlier, with the float part of the step before between them. Q8_0's weights are 128 too large here.
#define HR_START(c0, c1, w, g, quants)            \
  do {                                            \
    _tile_zero(c0);                               \
    _tile_zero(c1);                               \
    _tile_loadd(0, quants, kGroup);               \
    _tile_loadd(6, (w).lines[0] + (g) * 512, 64); \
    _tile_loadd(7, (w).lines[1] + (g) * 512, 64); \
    _tile_dpbsud(c0, 0, 6);                       \
    _tile_dpbsud(c1, 0, 7);                       \
  } while (false)
#define HR_KEEP(c0, c1, dots)                    \
  do {                                           \
    _tile_stored(c0, (dots)[0], 4 * kPanelRows); \
    _tile_stored(c1, (dots)[1], 4 * kPanelRows); \
  } while (false)

// acc + a * b in place. The intrinsic leaves the compiler a choice of which operand to overwrite, and with 24 sums in
// registers it chooses to move and spill them.
HR_KERNEL_INLINE void AddProduct(__m512& acc, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
}

// Adds one group's share of a row: the float part of matmul.h.
template <bool kQ4_1>
HR_KERNEL_INLINE void AddGroup(const int32_t* dots, __m512 scale, __m512 min, const Rows& x, int64_t at, __m512& acc) {
  __m512i dot = _mm512_load_si512(dots);
  if constexpr (kQ4_1) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(min), "m"(x.scaled_sum[at]));
  } else {
    dot = _mm512_sub_epi32(dot, _mm512_set1_epi32(128 * x.sum[at]));
  }
  AddProduct(acc, _mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[at])));
}

// Where the sums of a tile of rows and two panels come from and go to.
struct Target {
  float (*sums)[kPanels][kPanelRows];        // between blocks of groups
  const float (*rest)[kPanels][kPanelRows];  // second planes of the rows that have them
  const uint8_t* row_is_wide;
  float* out;
  int64_t out_stride;
  __mmask16 masks[kPanels];
  const std::byte* ahead[kPanels];  // the panels after these: this tile's share of their prefetch
  int ahead_lines;
  bool first_block, last_block, accumulate;
  bool gate_up;  // the panels are a gate and its up: one panel of silu(gate) * up is stored
};

template <int N>
HR_KERNEL_INLINE void Store(const Target& to, const __m512 (&acc)[kPanels][N]) {
  HR_UNROLL for (int n = 0; n < N; ++n) {
    float* out = to.out + n * to.out_stride;
    __m512 sums[kPanels] = {acc[0][n], acc[1][n]};
    if (to.accumulate) {
      HR_UNROLL for (int p = 0; p < kPanels; ++p) {
        sums[p] = _mm512_add_ps(_mm512_maskz_loadu_ps(to.masks[p], out + p * kPanelRows), sums[p]);
      }
    }
    if (to.row_is_wide[n] != 0) {
      HR_UNROLL for (int p = 0; p < kPanels; ++p) sums[p] = _mm512_add_ps(sums[p], _mm512_load_ps(to.rest[n][p]));
    }
    if (to.gate_up) {
      _mm512_mask_storeu_ps(out, to.masks[0], _mm512_mul_ps(Silu16(sums[0]), sums[1]));
    } else {
      HR_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_mask_storeu_ps(out + p * kPanelRows, to.masks[p], sums[p]);
    }
  }
}

// Adds a block of groups to the sums of N rows. The float part runs one group behind the dots, so that the tile unit
// and the vector unit work at the same time.
template <bool kQ4_1, int N>
void AddTile(Scratch& s, const WeightBlock& w, const Rows& x, const Target& to) {
  __m512 acc[kPanels][N];
  for (int i = 0; i < to.ahead_lines; ++i) {
    __builtin_prefetch(to.ahead[0] + 64 * i);
    __builtin_prefetch(to.ahead[1] + 64 * i);
  }
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      // Rows of the result lie far apart and are written last.
      if (p == 0 || !to.gate_up) __builtin_prefetch(to.out + n * to.out_stride + p * kPanelRows, 1);
      acc[p][n] = to.first_block ? _mm512_setzero_ps() : _mm512_load_ps(to.sums[n][p]);
    }
  }
  const auto add = [&](int g) __attribute__((always_inline)) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      const __m512 scale = _mm512_load_ps(s.scale[g][p]), min = _mm512_load_ps(s.min[g][p]);
      HR_UNROLL for (int n = 0; n < N; ++n) AddGroup<kQ4_1>(s.dots[g % 2][p][n], scale, min, x, g * N + n, acc[p][n]);
    }
  };
  HR_START(1, 2, w, 0, x.quants);
  int g = 0;  // groups before it are added; it is started
  for (; g + 2 <= w.count; g += 2) {
    HR_START(3, 4, w, g + 1, x.quants + (g + 1) * N * kGroup);
    HR_KEEP(1, 2, s.dots[0]);
    if (g > 0) add(g - 1);
    if (g + 2 < w.count) HR_START(1, 2, w, g + 2, x.quants + (g + 2) * N * kGroup);
    HR_KEEP(3, 4, s.dots[1]);
    add(g);
  }
  if (g > 0) add(g - 1);
  if (g < w.count) {
    HR_KEEP(1, 2, s.dots[0]);
    add(g);
  }
  if (to.last_block) return Store<N>(to, acc);
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_store_ps(to.sums[n][p], acc[p][n]);
  }
}

using TileFn = void (*)(Scratch&, const WeightBlock&, const Rows&, const Target&);
template <bool kQ4_1>
TileFn TileOf(int width) {
  static constexpr TileFn kTiles[kTileColumns] = {AddTile<kQ4_1, 1>,  AddTile<kQ4_1, 2>,  AddTile<kQ4_1, 3>,
                                                  AddTile<kQ4_1, 4>,  AddTile<kQ4_1, 5>,  AddTile<kQ4_1, 6>,
                                                  AddTile<kQ4_1, 7>,  AddTile<kQ4_1, 8>,  AddTile<kQ4_1, 9>,
                                                  AddTile<kQ4_1, 10>, AddTile<kQ4_1, 11>, AddTile<kQ4_1, 12>};
  return kTiles[width - 1];
}

// Adds the block's second planes to their rows' sums, kRestBatch entries at a time; what a batch reads beyond its
// entries is not used.
template <bool kQ4_1>
void AddRest(Scratch& s, const WeightBlock& w, const Activations& a, int64_t chunk) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1) + w.first;
  const int64_t first_row = chunk * kWideChunkRows;
  const Rows x{a.rest_quants, a.rest_scale, a.rest_scaled_sum, a.rest_sum};
  struct Batch {
    int g;
    int64_t begin, end;
  };
  const auto add = [&](const Batch& batch, const int32_t(*dots)[kTileColumns][kPanelRows]) {
    const __m512 scale0 = _mm512_load_ps(s.scale[batch.g][0]), scale1 = _mm512_load_ps(s.scale[batch.g][1]);
    const __m512 min0 = _mm512_load_ps(s.min[batch.g][0]), min1 = _mm512_load_ps(s.min[batch.g][1]);
    for (int64_t i = batch.begin; i < batch.end; ++i) {
      float(*sums)[kPanelRows] = s.rest[a.rest_row[i] - first_row];
      __m512 acc0 = _mm512_load_ps(sums[0]), acc1 = _mm512_load_ps(sums[1]);
      AddGroup<kQ4_1>(dots[0][i - batch.begin], scale0, min0, x, i, acc0);
      AddGroup<kQ4_1>(dots[1][i - batch.begin], scale1, min1, x, i, acc1);
      _mm512_store_ps(sums[0], acc0);
      _mm512_store_ps(sums[1], acc1);
    }
  };
  Batch started{};  // in tiles 1, 2 or 3, 4 by turns
  bool odd = false;
  const auto finish = [&] {
    if (odd) {
      HR_KEEP(1, 2, s.dots[0]);
    } else {
      HR_KEEP(3, 4, s.dots[1]);
    }
    if (started.begin < started.end) add(started, s.dots[odd ? 0 : 1]);
  };
  for (int g = 0; g < w.count; ++g) {
    for (int64_t e = starts[g]; e < starts[g + 1]; e += kRestBatch) {
      if (odd) {
        HR_START(3, 4, w, g, x.quants + e * kGroup);
      } else {
        HR_START(1, 2, w, g, x.quants + e * kGroup);
      }
      finish();
      started = {g, e, starts[g + 1] - e < kRestBatch ? starts[g + 1] : e + kRestBatch};
      odd = !odd;
    }
  }
  finish();
}

// Readies groups [first, first + count) of panels p0 and p1.
WeightBlock UnpackBlock(Scratch& s, const PackedMatrix& w, const std::byte* const* panels, int64_t first, int count) {
  WeightBlock block{{}, first, count};
  for (int p = 0; p < kPanels; ++p) {
    if (w.dtype == DType::kQ8_0) {
      const PanelQ8_0 panel = PanelQ8_0At(panels[p], w.columns / kGroup);
      block.lines[p] = panel.quants[first][0];
      for (int g = 0; g < count; ++g) _mm512_store_ps(s.scale[g][p], LoadHalves(panel.scale[first + g]));
      continue;
    }
    const __m512i low_mask = _mm512_set1_epi8(15);
    const auto* blocks = reinterpret_cast<const PanelBlockQ4_1*>(panels[p]) + first;
    block.lines[p] = s.weights[p][0][0];
    for (int g = 0; g < count; ++g) {
      HR_UNROLL for (int line = 0; line < 4; ++line) {
        const __m512i both = _mm512_loadu_si512(blocks[g].quants[line]);
        _mm512_store_si512(s.weights[p][g][line], _mm512_and_si512(both, low_mask));
        _mm512_store_si512(s.weights[p][g][line + 4], _mm512_and_si512(_mm512_srli_epi16(both, 4), low_mask));
      }
      _mm512_store_ps(s.scale[g][p], LoadHalves(blocks[g].scale));
      _mm512_store_ps(s.min[g][p], LoadHalves(blocks[g].min));
    }
  }
  return block;
}

// Rows [first_row, first_row + rows) of a chunk: the block's second planes first, then its tiles.
template <bool kQ4_1>
void AddChunk(Scratch& s, const WeightBlock& w, const MatMul& op, int64_t chunk, Target to) {
  const Activations& a = op.activations;
  const int64_t groups = a.groups(), first_row = chunk * kWideChunkRows;
  const int64_t rows = a.rows - first_row < kWideChunkRows ? a.rows - first_row : kWideChunkRows;
  const int32_t* starts = a.rest_first + chunk * (groups + 1);
  if (to.first_block && starts[0] != starts[groups]) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int p = 0; p < kPanels; ++p) _mm512_store_ps(s.rest[r][p], _mm512_setzero_ps());
    }
  }
  AddRest<kQ4_1>(s, w, a, chunk);
  for (int64_t r = 0; r < rows; r += kTileColumns) {
    const int64_t tile = (first_row + r) / kTileColumns;
    const int width = a.TileWidth(tile);
    const int64_t at = tile * kTileColumns * groups + w.first * width;
    Target rows_to = to;
    rows_to.sums = s.sums + r;
    rows_to.rest = s.rest + r;
    rows_to.row_is_wide = a.row_is_wide + first_row + r;
    rows_to.out = to.out + (first_row + r) * to.out_stride;
    for (int p = 0; p < kPanels; ++p) rows_to.ahead[p] = to.ahead[p] + tile * to.ahead_lines * 64;
    TileOf<kQ4_1>(width)(s, w, {a.quants + at * kGroup, a.scale + at, a.scaled_sum + at, a.sum + at}, rows_to);
  }
}

// Two panels at `data`, `step` bytes before the two that follow them, for all rows.
template <bool kQ4_1>
void PanelPair(Scratch& s, const MatMul& op, const std::byte* const* data, int64_t step, Target to) {
  const int64_t groups = op.activations.groups();
  const int64_t blocks = (groups + kBlockGroups - 1) / kBlockGroups, block_groups = (groups + blocks - 1) / blocks;
  for (int p = 0; p < kPanels; ++p) to.ahead[p] = data[p] + step;
  to.ahead_lines = static_cast<int>(op.weights.panel_bytes / (64 * op.activations.tiles()) + 1);
  WeightBlock w{};
  for (int64_t chunk = 0; chunk < op.activations.chunks(); ++chunk) {
    for (int64_t g = 0; g < groups; g += block_groups) {
      const int64_t count = groups - g < block_groups ? groups - g : block_groups;
      if (blocks > 1 || chunk == 0) w = UnpackBlock(s, op.weights, data, g, static_cast<int>(count));
      to.first_block = g == 0;
      to.last_block = g + count == groups;
      AddChunk<kQ4_1>(s, w, op, chunk, to);
    }
  }
}

void AnyPanelPair(Scratch& s, const MatMul& op, const std::byte* const* data, int64_t step, const Target& to) {
  op.weights.dtype == DType::kQ4_1 ? PanelPair<true>(s, op, data, step, to) : PanelPair<false>(s, op, data, step, to);
}

bool Takes(const MatMul& op) {
  return (op.weights.dtype == DType::kQ4_1 || op.weights.dtype == DType::kQ8_0) && op.activations.rows >= kAmxRowsMin;
}

Target TargetOf(const MatMul& op, int64_t panel) {
  Target to{};
  to.out = op.out + panel * kPanelRows;
  to.out_stride = op.out_stride;
  to.accumulate = op.accumulate;
  to.masks[0] = Mask(op.weights.rows - panel * kPanelRows);
  return to;
}

void MatMulPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (!Takes(op)) return Avx512Kernels().matmul(op, panel_begin, panel_end);
  Scratch scratch;
  Configure();
  for (int64_t p = panel_begin; p < panel_end; p += kPanels) {
    const bool two = p + 1 < panel_end;
    const std::byte* first = op.weights.data + p * op.weights.panel_bytes;
    const std::byte* data[kPanels] = {first, two ? first + op.weights.panel_bytes : first};
    Target to = TargetOf(op, p);
    to.masks[1] = two ? Mask(op.weights.rows - (p + 1) * kPanelRows) : 0;
    AnyPanelPair(scratch, op, data, kPanels * op.weights.panel_bytes, to);
  }
  _tile_release();
}

bool GateUpPanels(const GateUp& op, int64_t panel_begin, int64_t panel_end) {
  const MatMul& gate = op.gate;
  if (!Takes(gate) || gate.accumulate || op.up.dtype != gate.weights.dtype) return false;
  Scratch scratch;
  Configure();
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    const std::byte* data[kPanels] = {gate.weights.data + p * gate.weights.panel_bytes,
                                      op.up.data + p * op.up.panel_bytes};
    Target to = TargetOf(gate, p);
    to.gate_up = true;
    AnyPanelPair(scratch, gate, data, gate.weights.panel_bytes, to);
  }
  _tile_release();
  return true;
}

}  // namespace

const KernelTable& AmxKernels() {
  static const KernelTable kTable = [] {
    KernelTable table = Avx512Kernels();
    table.name = "amx";
    table.matmul = MatMulPanels;
    table.gate_up = GateUpPanels;
    return table;
  }();
  return kTable;
}

}  // namespace headrace
