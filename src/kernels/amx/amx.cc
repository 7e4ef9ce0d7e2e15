// AMX matrix product: the integer dots of a tile of activation rows and two panels come from TDPBSUD or TDPBSSD, the
// float part is that of avx512/, operation by operation. Everything else is avx512/'s. Intrinsics and plain structs
// only.
#include <immintrin.h>

#include "kernels/avx512/formats.h"
#include "kernels/avx512/matmul.h"
#include "kernels/kernel_table.h"

namespace headrace {
namespace {

constexpr int kPanels = 2;  // panels of one pass: they share the loads of the activations
// Groups whose weights wait unpacked, 80 KiB for two panels. More rows of 1,536 columns then find theirs ready than
// with the 24 that the first-level cache holds; 128 are no better.
constexpr int kBlockGroups = 48;
constexpr int kRestBatch = kTileColumns;
// Below so many rows the dot products of avx512/ are faster: weights are unpacked for them alone, and a tile takes as
// long as a full one. Measured in whole steps of 12, 16, 20, 24 and 32 sequences (Q4_1, Q4_0, Q8_0), in products of
// Q6_K.
constexpr int64_t RowsMin(DType type) {
  if (FormatOf(type).kind == GroupKind::kFactors) return 36;
  return DecodesFast(type) ? 20 : 16;
}

// While tile instructions are in flight one of the two vector ports multiplies and converts no more; it still adds. So
// dots start from the bits of kRoundMagic: as a float a dot is then kRoundMagic more than it is as an integer
// (|dot| < 2^22), and an addition converts it (1 % of a prompt).
struct alignas(64) MagicLine {
  float magic[kPanelRows];
};
constexpr MagicLine kMagicLine = [] {
  MagicLine line{};
  for (float& magic : line.magic) magic = kRoundMagic;
  return line;
}();

// Tile registers. 0: a tile of activation rows; 1, 2 and 3, 4: dots with two panels, in turn; 6, 7: 32 columns of the
// panels; with factors all have 16 columns, a half of a group. A narrower tile of activations is computed as a full
// one: rows beyond it are read and not used.

struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

struct Scratch {
  UnpackedGroup groups[kBlockGroups][kPanels];
  alignas(64) int32_t dots[2][2][kPanels][kTileColumns][kPanelRows];  // [turn][half of a group, with factors]
  alignas(64) float sums[kWideChunkRows][kPanels][kPanelRows];
  alignas(64) float rest[kWideChunkRows][kPanels][kPanelRows];
};
using TileDots = int32_t[kPanels][kTileColumns][kPanelRows];

// Groups [first, first + count) of two panels as the dot product reads them.
struct WeightBlock {
  const uint8_t* lines[kPanels];  // [8][64] of the first group
  int64_t first;
  int count;
};

// Rows of activations with their scalars, at the block's first group.
struct Rows {
  const int8_t* quants;
  const float* scale;
  const float* scaled_sum;
};

void Configure(GroupKind kind) {
  TileConfig config;
  const auto set = [&](int tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  const int columns = kind == GroupKind::kFactors ? kGroup / 2 : kGroup;
  set(0, kTileColumns, columns);
  for (int dots = 1; dots < 5; ++dots) set(dots, kTileColumns, 64);
  for (int weights = 6; weights < 8; ++weights) set(weights, columns / 4, 64);
  _tile_loadconfig(&config);
}

// Macros, since the intrinsics want literal registers.
#define HR_START(c0, c1, product)    \
  do {                               \
    _tile_loadd(c0, &kMagicLine, 0); \
    _tile_loadd(c1, &kMagicLine, 0); \
    _tile_loadd(0, quants, kGroup);  \
    _tile_loadd(6, w0, 64);          \
    _tile_loadd(7, w1, 64);          \
    product(c0, 0, 6);               \
    product(c1, 0, 7);               \
  } while (false)
#define HR_KEEP(c0, c1)                        \
  do {                                         \
    _tile_stored(c0, dots[0], 4 * kPanelRows); \
    _tile_stored(c1, dots[1], 4 * kPanelRows); \
  } while (false)

// Starts the dots of 12 rows and group g, with factors one half of it, in pair kPair of the registers. A product takes
// long: what Keep stores should have been started one step earlier, with the float part of the step before between.
// Codes are unpacked less their offset, but for kMin, whose codes have none and are unsigned.
template <GroupKind kKind, int kPair>
HR_KERNEL_INLINE void Start(const WeightBlock& w, int g, int half, const int8_t* quants) {
  const int64_t at = g * int64_t{kPanels * sizeof(UnpackedGroup)} + half * 256;
  const uint8_t *w0 = w.lines[0] + at, *w1 = w.lines[1] + at;
  quants += half * 16;
  if constexpr (kKind != GroupKind::kMin && kPair == 0) {
    HR_START(1, 2, _tile_dpbssd);
  } else if constexpr (kKind != GroupKind::kMin) {
    HR_START(3, 4, _tile_dpbssd);
  } else if constexpr (kPair == 0) {
    HR_START(1, 2, _tile_dpbsud);
  } else {
    HR_START(3, 4, _tile_dpbsud);
  }
}

template <int kPair>
HR_KERNEL_INLINE void Keep(TileDots& dots) {
  if constexpr (kPair == 0) {
    HR_KEEP(1, 2);
  } else {
    HR_KEEP(3, 4);
  }
}

// The operations of the float part on sums in registers. Intrinsics leave the compiler a choice of which operand to
// overwrite and of what to load once for both panels, and with 24 sums in registers it chooses to move and spill them.

// acc += a * b.
HR_KERNEL_INLINE void AddProduct(__m512& acc, __m512 a, __m512 b) {
  asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
}
HR_KERNEL_INLINE void AddProduct(__m512& acc, __m512 a, const float& b) {
  asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(a), "m"(b));
}
HR_KERNEL_INLINE __m512 Product(__m512 a, const float& b) {
  __m512 product;
  asm("vmulps %2%{1to16%}, %1, %0" : "=v"(product) : "v"(a), "m"(b));
  return product;
}
// A dot that began as kRoundMagic.
HR_KERNEL_INLINE __m512 DotOf(const __m512& dot) {
  __m512 less;
  asm("vaddps %2, %1, %0" : "=v"(less) : "v"(_mm512_set1_ps(-kRoundMagic)), "m"(dot));
  return less;
}
// What the float part of a group of one panel needs.
template <GroupKind kKind>
struct Scales {
  __m512 scale, min, factors[2];

  HR_KERNEL_INLINE explicit Scales(const UnpackedGroup& u) : scale(_mm512_load_ps(u.scale)) {
    if constexpr (kKind == GroupKind::kMin) min = _mm512_load_ps(u.min);
    if constexpr (kKind == GroupKind::kFactors) {
      factors[0] = _mm512_load_ps(u.factors[0]);
      factors[1] = _mm512_load_ps(u.factors[1]);
    }
  }
};

// Adds one group's share of a row: the float part of matmul.h. The dots of the second half lie a
// TileDots further. A sum of integers times factors is exact in floats, as avx512/tiles.h explains.
template <GroupKind kKind>
HR_KERNEL_INLINE void AddGroup(const int32_t* dots, const Scales<kKind>& w, const Rows& x, int at, __m512& acc) {
  constexpr int kHalfStep = sizeof(TileDots) / sizeof(int32_t);
  const auto line = [&](int step) __attribute__((always_inline)) -> const __m512& {
    return *reinterpret_cast<const __m512*>(dots + step);
  };
  if constexpr (kKind == GroupKind::kMin) AddProduct(acc, w.min, x.scaled_sum[at]);
  __m512 sum = DotOf(line(0));
  if constexpr (kKind == GroupKind::kFactors) {
    sum = _mm512_mul_ps(sum, w.factors[0]);
    AddProduct(sum, DotOf(line(kHalfStep)), w.factors[1]);
  }
  AddProduct(acc, sum, Product(w.scale, x.scale[at]));
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
  bool started;        // the tile's first dots are under way
  const int8_t* next;  // the rows of the tile whose first dots this one starts at its end, or null
  bool gate_up;        // the panels are a gate and its up: one panel of silu(gate) * up is stored
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

// A tile's share of the prefetch of the panels that follow, in as many steps as the tile has: all of it at once holds
// up the tile's own loads (a step of 32 sequences took a tenth longer).
struct Prefetch {
  const std::byte* panels[kPanels];
  int left, each;

  HR_KERNEL_INLINE Prefetch(const Target& to, int steps)
      : panels{to.ahead[0], to.ahead[1]}, left(to.ahead_lines), each(to.ahead_lines / (steps < 1 ? 1 : steps) + 1) {}
  HR_KERNEL_INLINE void Step() {
    const int lines = left < each ? left : each;
    left -= lines;
    for (int i = 0; i < lines; ++i) {
      HR_UNROLL for (int p = 0; p < kPanels; ++p) {
        __builtin_prefetch(panels[p], 0, 2);  // the first-level cache is full of the panels at hand
        panels[p] += 64;
      }
    }
  }
};

// Adds a block of groups to the sums of N rows. The float part runs one group behind the dots, so that the tile unit
// and the vector unit work at the same time; behind the last group's the next tile's first dots are made. Operands are
// copies: through references their fields would be read again behind each store of a tile.
template <GroupKind kKind, int N>
void AddTile(Scratch& s, const WeightBlock w, const Rows x, const Target& to) {
  const int8_t* const next = to.next;
  __m512 acc[kPanels][N];
  Prefetch prefetch(to, kKind == GroupKind::kFactors ? w.count : w.count / 2);
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      // Rows of the result lie far apart and are written last.
      if (p == 0 || !to.gate_up) __builtin_prefetch(to.out + n * to.out_stride + p * kPanelRows, 1);
      acc[p][n] = to.first_block ? _mm512_setzero_ps() : _mm512_load_ps(to.sums[n][p]);
    }
  }
  const auto add = [&](int g) __attribute__((always_inline)) {
    const UnpackedGroup* groups = InRegister(s.groups[g]);
    const TileDots& dots = *InRegister(&s.dots[g % 2][0]);
    const Rows rows{nullptr, InRegister(x.scale + g * N), InRegister(x.scaled_sum + g * N)};
    HR_UNROLL for (int p = 0; p < kPanels; ++p) {
      const Scales<kKind> scales(groups[p]);
      HR_UNROLL for (int n = 0; n < N; ++n) AddGroup(dots[p][n], scales, rows, n, acc[p][n]);
    }
  };
  const auto quants = [&](int g) __attribute__((always_inline)) { return x.quants + g * N * kGroup; };
  const auto start = [&](int group) __attribute__((always_inline)) {
    const int8_t* from = group < w.count ? quants(group) : next;
    if (from != nullptr) Start<kKind, 0>(w, group < w.count ? group : 0, 0, from);
  };
  if (!to.started) Start<kKind, 0>(w, 0, 0, x.quants);
  int g = 0;  // it is started, groups before g - 1 are added
  if constexpr (kKind == GroupKind::kFactors) {
    for (; g < w.count; ++g) {
      Start<kKind, 1>(w, g, 1, quants(g));
      Keep<0>(s.dots[g % 2][0]);
      prefetch.Step();
      if (g > 0) add(g - 1);
      start(g + 1);
      Keep<1>(s.dots[g % 2][1]);
    }
    add(g - 1);
  } else {
    for (; g + 2 <= w.count; g += 2) {
      Start<kKind, 1>(w, g + 1, 0, quants(g + 1));
      Keep<0>(s.dots[0][0]);
      prefetch.Step();
      if (g > 0) add(g - 1);
      start(g + 2);
      Keep<1>(s.dots[1][0]);
      add(g);
    }
    if (g < w.count) {
      Keep<0>(s.dots[0][0]);
      prefetch.Step();
      start(w.count);
    }
    if (g > 0) add(g - 1);
    if (g < w.count) add(g);
  }
  if (to.last_block) return Store<N>(to, acc);
  HR_UNROLL for (int n = 0; n < N; ++n) {
    HR_UNROLL for (int p = 0; p < kPanels; ++p) _mm512_store_ps(to.sums[n][p], acc[p][n]);
  }
}

using TileFn = void (*)(Scratch&, WeightBlock, Rows, const Target&);
template <GroupKind K>
TileFn TileOf(int width) {
  static constexpr TileFn kTiles[kTileColumns] = {AddTile<K, 1>, AddTile<K, 2>,  AddTile<K, 3>,  AddTile<K, 4>,
                                                  AddTile<K, 5>, AddTile<K, 6>,  AddTile<K, 7>,  AddTile<K, 8>,
                                                  AddTile<K, 9>, AddTile<K, 10>, AddTile<K, 11>, AddTile<K, 12>};
  return kTiles[width - 1];
}

// Adds the block's second planes to their rows' sums, kRestBatch entries at a time; what a batch reads beyond its
// entries is not used. A batch is added while the dots of the next are made.
template <GroupKind kKind>
void AddRest(Scratch& s, const WeightBlock& w, const Activations& a, int64_t chunk) {
  const int32_t* starts = a.rest_first + chunk * (a.groups() + 1) + w.first;
  struct Batch {
    int g;
    int64_t first;
    int count, turn;
  };
  const auto add = [&](const Batch& b) {
    const Scales<kKind> first(s.groups[b.g][0]), second(s.groups[b.g][1]);
    const Rows x{nullptr, a.rest_scale + b.first, a.rest_scaled_sum + b.first};
    for (int i = 0; i < b.count; ++i) {
      float(*sums)[kPanelRows] = s.rest[a.rest_row[b.first + i]];
      __m512 acc0 = _mm512_load_ps(sums[0]), acc1 = _mm512_load_ps(sums[1]);
      AddGroup(s.dots[b.turn][0][0][i], first, x, i, acc0);
      AddGroup(s.dots[b.turn][0][1][i], second, x, i, acc1);
      _mm512_store_ps(sums[0], acc0);
      _mm512_store_ps(sums[1], acc1);
    }
  };
  Batch last{};
  for (int g = 0; g < w.count; ++g) {
    for (int64_t e = starts[g]; e < starts[g + 1]; e += kRestBatch) {
      const int8_t* quants = a.rest_quants + e * kGroup;
      Start<kKind, 0>(w, g, 0, quants);
      if constexpr (kKind == GroupKind::kFactors) Start<kKind, 1>(w, g, 1, quants);
      add(last);
      const int64_t left = starts[g + 1] - e;
      last = {g, e, static_cast<int>(left < kRestBatch ? left : kRestBatch), 1 - last.turn};
      Keep<0>(s.dots[last.turn][0]);
      if constexpr (kKind == GroupKind::kFactors) Keep<1>(s.dots[last.turn][1]);
    }
  }
  add(last);
}

// Readies groups [first, first + count) of two panels.
template <DType kType>
void UnpackBlock(Scratch& s, const PackedMatrix& w, const std::byte* const* panels, int64_t first, int count) {
  using Reader = PanelReader<kType>;
  for (int p = 0; p < kPanels; ++p) {
    const Reader reader(panels[p], w.columns / kGroup);
    for (int g = 0; g < count; ++g)
      UnpackGroup<Reader, Reader::kKind != GroupKind::kMin>(reader, first + g, s.groups[g][p]);
  }
}

WeightBlock UnpackAny(Scratch& s, const PackedMatrix& w, const std::byte* const* panels, int64_t first, int64_t count) {
  WithFormat(w.dtype, [&]<DType kType>() __attribute__((always_inline)) {
    UnpackBlock<kType>(s, w, panels, first, static_cast<int>(count));
  });
  return {{s.groups[0][0].lines[0], s.groups[0][1].lines[0]}, first, static_cast<int>(count)};
}

// Rows [first_row, first_row + rows) of a chunk: the block's second planes first, then its tiles.
template <GroupKind kKind>
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
  AddRest<kKind>(s, w, a, chunk);
  to.started = false;
  for (int64_t r = 0; r < rows; r += kTileColumns) {
    const int64_t tile = (first_row + r) / kTileColumns;
    const int width = a.TileWidth(tile);
    const auto first_of = [&](int64_t t) { return t * kTileColumns * groups + w.first * a.TileWidth(t); };
    const int64_t at = first_of(tile);
    to.next = r + kTileColumns < rows ? a.quants + first_of(tile + 1) * kGroup : nullptr;
    Target rows_to = to;
    rows_to.sums = s.sums + r;
    rows_to.rest = s.rest + r;
    rows_to.row_is_wide = a.row_is_wide + first_row + r;
    rows_to.out = to.out + (first_row + r) * to.out_stride;
    for (int p = 0; p < kPanels; ++p) rows_to.ahead[p] = to.ahead[p] + tile * to.ahead_lines * 64;
    const Rows x{a.quants + at * kGroup, a.scale + at, a.scaled_sum + at};
    TileOf<kKind>(width)(s, w, x, rows_to);
    to.started = to.next != nullptr;
  }
}

// Two panels at `data`, `step` bytes before the two that follow them, for all rows.
template <GroupKind kKind>
void PanelPair(Scratch& s, const MatMul& op, const std::byte* const* data, int64_t step, Target to) {
  const int64_t groups = op.activations.groups();
  const int64_t blocks = (groups + kBlockGroups - 1) / kBlockGroups, block_groups = (groups + blocks - 1) / blocks;
  for (int p = 0; p < kPanels; ++p) to.ahead[p] = data[p] + step;
  to.ahead_lines = static_cast<int>(op.weights.panel_bytes / (64 * op.activations.tiles()) + 1);
  WeightBlock w{};
  for (int64_t chunk = 0; chunk < op.activations.chunks(); ++chunk) {
    for (int64_t g = 0; g < groups; g += block_groups) {
      const int64_t count = groups - g < block_groups ? groups - g : block_groups;
      if (blocks > 1 || chunk == 0) w = UnpackAny(s, op.weights, data, g, count);
      to.first_block = g == 0;
      to.last_block = g + count == groups;
      AddChunk<kKind>(s, w, op, chunk, to);
    }
  }
}

void AnyPanelPair(Scratch& s, const MatMul& op, const std::byte* const* data, int64_t step, const Target& to) {
  switch (FormatOf(op.weights.dtype).kind) {
    case GroupKind::kPlain:
      return PanelPair<GroupKind::kPlain>(s, op, data, step, to);
    case GroupKind::kMin:
      return PanelPair<GroupKind::kMin>(s, op, data, step, to);
    case GroupKind::kFactors:
      return PanelPair<GroupKind::kFactors>(s, op, data, step, to);
    case GroupKind::kFactorsAndMins:
      return;  // Takes refuses it
  }
}

// Q2_K is left to avx512/: with two products of half a tile and the longest float part it is a third slower here.
bool Takes(const MatMul& op) {
  return IsQuantised(op.weights.dtype) && FormatOf(op.weights.dtype).kind != GroupKind::kFactorsAndMins &&
         op.activations.rows >= RowsMin(op.weights.dtype);
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
  if (!Takes(op)) return Avx512MatMul(op, panel_begin, panel_end);
  Scratch scratch;
  Configure(FormatOf(op.weights.dtype).kind);
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
  Configure(FormatOf(gate.weights.dtype).kind);
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
