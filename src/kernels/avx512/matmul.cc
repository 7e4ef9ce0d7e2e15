// The AVX-512 matrix product of quantised weights. A tile of rows is multiplied with the panel as it lies; for more
// tiles a block of groups is decoded once into the first-level cache, unless decoding costs little.
#include "kernels/avx512/matmul.h"

#include "kernels/avx512/floats.h"
#include "kernels/avx512/tiles.h"

namespace headrace {
namespace {

// Groups of a decoded block: 13 KiB at most, so that it and a tile's activations (6 KiB) stay in a first-level cache
// that two hardware threads share.
constexpr int kBlockGroups = 16;
constexpr int kDirectRowsWithFactors = 4;  // whose tiles are the largest code

// A tile from one of its groups on.
Entries TileEntries(const Activations& a, int64_t tile, int64_t group) {
  return EntriesAt(a, tile * kTileColumns * a.groups() + group * a.TileWidth(tile));
}

void ZeroRows(float (*rows)[kPanelRows], int count) {
  for (int r = 0; r < count; ++r) _mm512_store_ps(rows[r], _mm512_setzero_ps());
}

// ---- panels as they lie

template <DType kType, int N>
void DirectTile(const MatMul& op, int64_t panel, int64_t tile, const Entries& x) {
  const int64_t groups = op.activations.groups();
  const PanelReader<kType> w(op.weights.data + panel * op.weights.panel_bytes, groups);
  __m512 acc[N];
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_setzero_ps();
  AddTile<PanelReader<kType>, N>(w, groups, x, tile == 0, acc);
  HR_UNROLL for (int n = 0; n < N; ++n) StorePanel(op, tile * kTileColumns + n, panel, acc[n]);
}

using DirectFn = void (*)(const MatMul&, int64_t, int64_t, const Entries&);
template <DType T>
DirectFn DirectTileOf(int width) {
  if constexpr (!HasFactors(FormatOf(T).kind)) {
    static constexpr DirectFn kTiles[kTileColumns] = {
        DirectTile<T, 1>, DirectTile<T, 2>, DirectTile<T, 3>, DirectTile<T, 4>,  DirectTile<T, 5>,  DirectTile<T, 6>,
        DirectTile<T, 7>, DirectTile<T, 8>, DirectTile<T, 9>, DirectTile<T, 10>, DirectTile<T, 11>, DirectTile<T, 12>};
    return kTiles[width - 1];
  } else {
    static constexpr DirectFn kTiles[kDirectRowsWithFactors] = {DirectTile<T, 1>, DirectTile<T, 2>, DirectTile<T, 3>,
                                                                DirectTile<T, 4>};
    return kTiles[width - 1];
  }
}

template <DType kType>
void DirectRest(const MatMul& op, int64_t panel) {
  alignas(64) float rest[kWideChunkRows][kPanelRows];
  const Activations& a = op.activations;
  const PanelReader<kType> w(op.weights.data + panel * op.weights.panel_bytes, a.groups());
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    if (!HasRest(a, chunk)) continue;
    ZeroRows(rest, a.rows < kWideChunkRows ? static_cast<int>(a.rows) : kWideChunkRows);
    AddRestGroups(w, a, chunk, 0, a.groups(), rest);
    StoreRest(op, panel, chunk, rest);
  }
}

template <DType kType>
void DirectPair(const MatMul& op, int64_t panel, const Entries& x) {
  const int64_t groups = op.activations.groups();
  const std::byte* w = op.weights.data + panel * op.weights.panel_bytes;
  const PanelReader<kType> first(w, groups), second(w + op.weights.panel_bytes, groups);
  __m512 acc[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  AddPair(first, second, groups, x, acc);
  for (int i = 0; i < 2; ++i) StorePanel(op, 0, panel + i, acc[i]);
  for (int i = 0; i < 2; ++i) DirectRest<kType>(op, panel + i);
}

template <DType kType>
void DirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const Activations& a = op.activations;
  const int64_t tiles = a.tiles();
  int64_t p = panel_begin;
  if (a.rows == 1) {
    for (; p + 1 < panel_end; p += 2) DirectPair<kType>(op, p, TileEntries(a, 0, 0));
  }
  for (; p < panel_end; ++p) {
    for (int64_t t = 0; t < tiles; ++t) DirectTileOf<kType>(a.TileWidth(t))(op, p, t, TileEntries(a, t, 0));
    DirectRest<kType>(op, p);
  }
}

bool IsDirect(const MatMul& op) {
  const int rows_max = HasFactors(FormatOf(op.weights.dtype).kind) ? kDirectRowsWithFactors : kTileColumns;
  return DecodesFast(op.weights.dtype) || op.activations.rows <= rows_max;
}

void AnyDirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFormat(op.weights.dtype,
             [&]<DType kType>() __attribute__((always_inline)) { DirectPanels<kType>(op, panel_begin, panel_end); });
}

// ---- decoded blocks

struct Scratch {
  UnpackedGroup groups[kBlockGroups];
  alignas(64) float sums[kWideChunkRows][kPanelRows];
  alignas(64) float rest[kWideChunkRows][kPanelRows];
};

// Groups [first, first + count) of a panel, and what of its stream comes next.
struct Block {
  int64_t first;
  int count, offset, next_lines;
  const std::byte* next;
};

template <DType kType>
void UnpackBlock(UnpackedGroup* to, const std::byte* panel, int64_t groups, Block& block) {
  using Reader = PanelReader<kType>;
  const Reader w(panel, groups);
  for (int g = 0; g < block.count; ++g) UnpackGroup(w, block.first + g, to[g]);
  block.offset = Reader::kFormat.offset;
  block.next = w.Ahead(block.first + block.count);
  block.next_lines = (Reader::kStepBytes + 63) / 64;
}

template <GroupKind kKind, int N>
void BlockTile(const UnpackedReader<kKind>& w, int count, const Entries& x, bool prefetch, float (*sums)[kPanelRows]) {
  __m512 acc[N];
  HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm512_load_ps(sums[n]);
  AddTile<UnpackedReader<kKind>, N>(w, count, x, prefetch, acc);
  HR_UNROLL for (int n = 0; n < N; ++n) _mm512_store_ps(sums[n], acc[n]);
}

template <GroupKind K>
auto BlockTileOf(int width) {
  using BlockFn = void (*)(const UnpackedReader<K>&, int, const Entries&, bool, float(*)[kPanelRows]);
  static constexpr BlockFn kTiles[kTileColumns] = {
      BlockTile<K, 1>, BlockTile<K, 2>, BlockTile<K, 3>, BlockTile<K, 4>,  BlockTile<K, 5>,  BlockTile<K, 6>,
      BlockTile<K, 7>, BlockTile<K, 8>, BlockTile<K, 9>, BlockTile<K, 10>, BlockTile<K, 11>, BlockTile<K, 12>};
  return kTiles[width - 1];
}

// Adds a decoded block to the sums of a chunk of rows.
template <GroupKind kKind>
void AddBlock(Scratch& s, const Activations& a, int64_t chunk, const Block& block) {
  const UnpackedReader<kKind> w{s.groups, block.offset, block.next, block.next_lines};
  AddRestGroups(w, a, chunk, block.first, block.count, s.rest);
  const int64_t first_tile = chunk * (kWideChunkRows / kTileColumns);
  for (int64_t t = first_tile; t < a.tiles() && t < first_tile + kWideChunkRows / kTileColumns; ++t) {
    const int width = a.TileWidth(t);
    const Entries x = TileEntries(a, t, block.first);
    BlockTileOf<kKind>(width)(w, block.count, x, t == 0, s.sums + (t - first_tile) * kTileColumns);
  }
}

void AnyAddBlock(Scratch& s, const MatMul& op, int64_t chunk, const Block& block) {
  switch (FormatOf(op.weights.dtype).kind) {
    case GroupKind::kPlain:
      return AddBlock<GroupKind::kPlain>(s, op.activations, chunk, block);
    case GroupKind::kMin:
      return AddBlock<GroupKind::kMin>(s, op.activations, chunk, block);
    case GroupKind::kFactors:
      return AddBlock<GroupKind::kFactors>(s, op.activations, chunk, block);
    case GroupKind::kFactorsAndMins:
      return AddBlock<GroupKind::kFactorsAndMins>(s, op.activations, chunk, block);
  }
}

void BlockPanel(Scratch& s, const MatMul& op, int64_t panel) {
  const Activations& a = op.activations;
  const int64_t groups = a.groups();
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    const int64_t first_row = chunk * kWideChunkRows;
    const int rows = static_cast<int>(a.rows - first_row < kWideChunkRows ? a.rows - first_row : kWideChunkRows);
    ZeroRows(s.sums, rows);
    if (HasRest(a, chunk)) ZeroRows(s.rest, rows);
    for (int64_t g = 0; g < groups; g += kBlockGroups) {
      Block block{g, static_cast<int>(groups - g < kBlockGroups ? groups - g : kBlockGroups), 0, 0, nullptr};
      WithFormat(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
        UnpackBlock<kType>(s.groups, op.weights.data + panel * op.weights.panel_bytes, groups, block);
      });
      AnyAddBlock(s, op, chunk, block);
    }
    for (int r = 0; r < rows; ++r) StorePanel(op, first_row + r, panel, _mm512_load_ps(s.sums[r]));
    if (HasRest(a, chunk)) StoreRest(op, panel, chunk, s.rest);
  }
}

}  // namespace

void Avx512MatMul(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (!IsQuantised(op.weights.dtype)) return Avx512FloatMatMul(op, panel_begin, panel_end);
  if (IsDirect(op)) return AnyDirectPanels(op, panel_begin, panel_end);
  Scratch scratch;
  for (int64_t p = panel_begin; p < panel_end; ++p) BlockPanel(scratch, op, p);
}

}  // namespace headrace
