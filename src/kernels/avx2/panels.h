// The AVX2 matrix product of quantised weights, half a panel and a few rows at a time. Few rows are multiplied with the
// panel as it lies; for more a block of groups is decoded once into the first-level cache, unless decoding costs
// little. All is in an unnamed namespace: avx2/ and avxvnni/ compile it each for its own instructions.
#pragma once

#include "kernels/avx2/tiles.h"

namespace headrace {
namespace {

constexpr int kBlockGroups = 16;  // as in avx512/matmul.cc
constexpr int kDirectRows = 4;
// 16 registers: four sums, four dots, four runs, what is shared; with VNNI there are no runs.
constexpr int kSubTileRows = kVnni ? 6 : 4;

// Rows [first, first + N) of one tile, from one of its groups on; `width` entries a group.
struct Rows {
  Entries entries;
  int64_t first_row;
  int width;
  bool prefetch;
};

void ZeroRows(float (*rows)[kPanelRows], int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    _mm256_store_ps(rows[r], _mm256_setzero_ps());
    _mm256_store_ps(rows[r] + 8, _mm256_setzero_ps());
  }
}

int64_t ChunkRows(const Activations& a, int64_t chunk) {
  const int64_t left = a.rows - chunk * kWideChunkRows;
  return left < kWideChunkRows ? left : kWideChunkRows;
}

template <typename Weights, int N>
HR_KERNEL_INLINE void AddTile(const Weights& w, int64_t groups, const Rows& x, __m256* acc) {
  for (int64_t g = 0; g < groups; ++g) {
    if (x.prefetch) w.Prefetch(g);
    AddGroup<Weights, N>(w, g, x.entries, g * x.width, acc);
  }
}

// body.operator()<n>(rows), n at most kMost.
template <int kMost, typename Body>
HR_KERNEL_INLINE void WithRows(int n, const Rows& rows, Body& body) {
  if constexpr (kMost > 1) {
    if (n < kMost) return WithRows<kMost - 1>(n, rows, body);
  }
  body.template operator()<kMost>(rows);
}

// body.operator()<N>(rows) for the tile's rows, at most kSubTileRows at a time.
template <typename Body>
HR_KERNEL_INLINE void ForSubTiles(const Activations& a, int64_t tile, int64_t group, Body&& body) {
  const int width = a.TileWidth(tile);
  const int64_t at = tile * kTileColumns * a.groups() + group * width;
  for (int first = 0; first < width; first += kSubTileRows) {
    const Rows rows{EntriesAt(a, at + first), tile * kTileColumns + first, width, tile == 0 && first == 0};
    const int left = width - first;
    WithRows<kSubTileRows>(left < kSubTileRows ? left : kSubTileRows, rows, body);
  }
}

// ---- panels as they lie

constexpr bool DecodesFast(DType type) {
  const PanelFormat format = FormatOf(type);
  return format.high_bits == 0 && !HasFactors(format.kind);
}

template <DType kType, int N>
void DirectTile(const MatMul& op, int64_t panel, Rows x) {
  // Both halves of a panel at once for one or two rows: more chains, and one pass over memory.
  constexpr int kHalves = N <= 2 ? 2 : 1;
  using Reader = PanelReader<kType>;
  const int64_t groups = op.activations.groups();
  const std::byte* data = op.weights.data + panel * op.weights.panel_bytes;
  for (int first = 0; first < 2; first += kHalves) {
    const Reader w[2] = {Reader(data, first, groups), Reader(data, 1, groups)};
    __m256 acc[kHalves][N];
    HR_UNROLL for (int half = 0; half < kHalves; ++half) {
      HR_UNROLL for (int n = 0; n < N; ++n) acc[half][n] = _mm256_setzero_ps();
    }
    for (int64_t g = 0; g < groups; ++g) {
      if (x.prefetch) w[0].Prefetch(g);
      HR_UNROLL for (int half = 0; half < kHalves; ++half) {
        AddGroup<Reader, N>(w[half], g, x.entries, g * x.width, acc[half]);
      }
    }
    HR_UNROLL for (int half = 0; half < kHalves; ++half) {
      HR_UNROLL for (int n = 0; n < N; ++n) {
        StoreHalf(op, x.first_row + n, panel * kPanelRows + 8 * (first + half), acc[half][n]);
      }
    }
    x.prefetch = false;
  }
}

template <DType kType>
void DirectRest(const MatMul& op, int64_t panel) {
  alignas(32) float rest[kWideChunkRows][kPanelRows];
  const Activations& a = op.activations;
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    if (!HasRest(a, chunk)) continue;
    ZeroRows(rest, ChunkRows(a, chunk));
    for (int half = 0; half < 2; ++half) {
      const PanelReader<kType> w(op.weights.data + panel * op.weights.panel_bytes, half, a.groups());
      AddRestGroups(w, a, chunk, 0, a.groups(), rest);
    }
    StoreRest(op, panel, chunk, rest);
  }
}

template <DType kType>
void DirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const Activations& a = op.activations;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    for (int64_t t = 0; t < a.tiles(); ++t) {
      ForSubTiles(a, t, 0,
                  [&]<int N>(const Rows& rows) __attribute__((always_inline)) { DirectTile<kType, N>(op, p, rows); });
    }
    DirectRest<kType>(op, p);
  }
}

bool IsDirect(const MatMul& op) { return DecodesFast(op.weights.dtype) || op.activations.rows <= kDirectRows; }

void AnyDirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFormat(op.weights.dtype,
             [&]<DType kType>() __attribute__((always_inline)) { DirectPanels<kType>(op, panel_begin, panel_end); });
}

// ---- decoded blocks

struct Scratch {
  UnpackedGroup groups[kBlockGroups];
  alignas(32) float sums[kWideChunkRows][kPanelRows];
  alignas(32) float rest[kWideChunkRows][kPanelRows];
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
  for (int half = 0; half < 2; ++half) {
    const Reader w(panel, half, groups);
    for (int g = 0; g < block.count; ++g) UnpackHalfGroup(w, block.first + g, to[g]);
    block.next = w.Ahead(block.first + block.count);
  }
  block.offset = Reader::Offset();
  block.next_lines = (Reader::kStepBytes + 63) / 64;
}

template <typename Weights, int N>
void BlockTile(Weights w, int count, Rows x, float (*sums)[kPanelRows]) {
  for (w.half = 0; w.half < 2; ++w.half) {
    __m256 acc[N];
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = _mm256_load_ps(sums[n] + 8 * w.half);
    AddTile<Weights, N>(w, count, x, acc);
    HR_UNROLL for (int n = 0; n < N; ++n) _mm256_store_ps(sums[n] + 8 * w.half, acc[n]);
    x.prefetch = false;
  }
}

// Adds a decoded block to the sums of a chunk of rows.
template <GroupKind kKind, int kCodeMax>
void AddBlock(Scratch& s, const Activations& a, int64_t chunk, const Block& block) {
  using Weights = UnpackedReader<kKind, kCodeMax>;
  Weights w{s.groups, block.offset, block.next, block.next_lines, 0};
  for (w.half = 0; w.half < 2; ++w.half) AddRestGroups(w, a, chunk, block.first, block.count, s.rest);
  const int64_t first_tile = chunk * (kWideChunkRows / kTileColumns);
  for (int64_t t = first_tile; t < a.tiles() && t < first_tile + kWideChunkRows / kTileColumns; ++t) {
    ForSubTiles(a, t, block.first, [&]<int N>(const Rows& rows) __attribute__((always_inline)) {
      BlockTile<Weights, N>(w, block.count, rows, s.sums + rows.first_row - chunk * kWideChunkRows);
    });
  }
}

void AnyAddBlock(Scratch& s, const MatMul& op, int64_t chunk, const Block& block) {
  const PanelFormat format = FormatOf(op.weights.dtype);
  switch (format.kind) {
    case GroupKind::kPlain:
      if (HasSignedLines(format.code_max)) return AddBlock<GroupKind::kPlain, 255>(s, op.activations, chunk, block);
      return AddBlock<GroupKind::kPlain, 31>(s, op.activations, chunk, block);
    case GroupKind::kMin:
      return AddBlock<GroupKind::kMin, 31>(s, op.activations, chunk, block);
    case GroupKind::kFactors:
      return AddBlock<GroupKind::kFactors, 63>(s, op.activations, chunk, block);
    case GroupKind::kFactorsAndMins:
      return AddBlock<GroupKind::kFactorsAndMins, 3>(s, op.activations, chunk, block);
  }
}

void StoreSums(const MatMul& op, int64_t panel, int64_t chunk, const float (*sums)[kPanelRows]) {
  for (int half = 0; half < 2; ++half) {
    const int64_t row = panel * kPanelRows + 8 * half;
    for (int64_t r = 0; r < ChunkRows(op.activations, chunk); ++r) {
      StoreHalf(op, chunk * kWideChunkRows + r, row, _mm256_load_ps(sums[r] + 8 * half));
    }
  }
}

void BlockPanel(Scratch& s, const MatMul& op, int64_t panel) {
  const Activations& a = op.activations;
  const int64_t groups = a.groups();
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    ZeroRows(s.sums, ChunkRows(a, chunk));
    if (HasRest(a, chunk)) ZeroRows(s.rest, ChunkRows(a, chunk));
    for (int64_t g = 0; g < groups; g += kBlockGroups) {
      Block block{g, static_cast<int>(groups - g < kBlockGroups ? groups - g : kBlockGroups), 0, 0, nullptr};
      WithFormat(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
        UnpackBlock<kType>(s.groups, op.weights.data + panel * op.weights.panel_bytes, groups, block);
      });
      AnyAddBlock(s, op, chunk, block);
    }
    StoreSums(op, panel, chunk, s.sums);
    if (HasRest(a, chunk)) StoreRest(op, panel, chunk, s.rest);
  }
}

HR_KERNEL_INLINE void MultiplyPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (IsDirect(op)) return AnyDirectPanels(op, panel_begin, panel_end);
  Scratch scratch;
  for (int64_t p = panel_begin; p < panel_end; ++p) BlockPanel(scratch, op, p);
}

}  // namespace
}  // namespace headrace
