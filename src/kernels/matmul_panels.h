// The matrix product of quantised weights over a class L (matmul_tiles.h), half a panel and a few rows at a time. Few
// rows are multiplied with the panel as it lies; for more a block of groups is decoded once into the first-level cache,
// unless decoding costs little. L has, for this,
//   kSubTileRows: rows whose sums and dots its registers hold;  HasSignedLines(code_max): lines are code - offset
//   Reader<DType>(panel, half, groups): groups where they lie;  Unpacked<GroupKind, code_max>: decoded ones
//   Group: a decoded group of a whole panel;  Unpack(reader, g, Group&): the reader's half of it
#pragma once

#include "kernels/matmul_tiles.h"

namespace headrace {

constexpr int kBlockGroups = 16;  // as in avx512/matmul.cc
constexpr int kDirectRows = 4;
// Rows [first, first + N) of one tile, from one of its groups on; `width` entries a group.
struct Rows {
  Entries entries;
  int64_t first_row;
  int width;
  bool prefetch;
};

HR_KERNEL_INLINE void ZeroRows(float (*rows)[kPanelRows], int64_t count) {
  __builtin_memset(rows, 0, static_cast<size_t>(count) * sizeof *rows);
}

HR_KERNEL_INLINE int64_t ChunkRows(const Activations& a, int64_t chunk) {
  const int64_t left = a.rows - chunk * kWideChunkRows;
  return left < kWideChunkRows ? left : kWideChunkRows;
}

template <typename Weights, int N>
HR_KERNEL_INLINE void AddTile(const Weights& w, int64_t groups, const Rows& x, typename Weights::L::F* acc) {
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
template <typename L, typename Body>
HR_KERNEL_INLINE void ForSubTiles(const Activations& a, int64_t tile, int64_t group, Body&& body) {
  const int width = a.TileWidth(tile);
  const int64_t at = tile * kTileColumns * a.groups() + group * width;
  for (int first = 0; first < width; first += L::kSubTileRows) {
    const Rows rows{EntriesAt(a, at + first), tile * kTileColumns + first, width, tile == 0 && first == 0};
    const int left = width - first;
    WithRows<L::kSubTileRows>(left < L::kSubTileRows ? left : L::kSubTileRows, rows, body);
  }
}

// ---- panels as they lie

HR_KERNEL_INLINE constexpr bool DecodesFast(DType type) {
  const PanelFormat format = FormatOf(type);
  return format.high_bits == 0 && !HasFactors(format.kind);
}

// Not inlined: with all widths of all types in one function, clang keeps the registers' contents in memory.
template <typename L, DType kType, int N>
[[gnu::noinline]] void DirectTile(const MatMul& op, int64_t panel, Rows x) {
  // Both halves of a panel at once for one or two rows: more chains, and one pass over memory.
  constexpr int kHalves = N <= 2 ? 2 : 1;
  using Reader = typename L::template Reader<kType>;
  const int64_t groups = op.activations.groups();
  const std::byte* data = op.weights.data + panel * op.weights.panel_bytes;
  for (int first = 0; first < 2; first += kHalves) {
    const Reader w[2] = {Reader(data, first, groups), Reader(data, 1, groups)};
    typename L::F acc[kHalves][N];
    HR_UNROLL for (int half = 0; half < kHalves; ++half) {
      HR_UNROLL for (int n = 0; n < N; ++n) acc[half][n] = L::Zero();
    }
    for (int64_t g = 0; g < groups; ++g) {
      if (x.prefetch) w[0].Prefetch(g);
      HR_UNROLL for (int half = 0; half < kHalves; ++half) {
        AddGroup<Reader, N>(w[half], g, x.entries, g * x.width, acc[half]);
      }
    }
    HR_UNROLL for (int half = 0; half < kHalves; ++half) {
      HR_UNROLL for (int n = 0; n < N; ++n) {
        StoreHalf<L>(op, x.first_row + n, panel * kPanelRows + 8 * (first + half), acc[half][n]);
      }
    }
    x.prefetch = false;
  }
}

template <typename L, DType kType>
void DirectRest(const MatMul& op, int64_t panel) {
  alignas(64) float rest[kWideChunkRows][kPanelRows];
  const Activations& a = op.activations;
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    if (!HasRest(a, chunk)) continue;
    ZeroRows(rest, ChunkRows(a, chunk));
    for (int half = 0; half < 2; ++half) {
      const typename L::template Reader<kType> w(op.weights.data + panel * op.weights.panel_bytes, half, a.groups());
      AddRestGroups(w, a, chunk, 0, a.groups(), rest);
    }
    StoreRest<L>(op, panel, chunk, rest);
  }
}

template <typename L, DType kType>
void DirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  const Activations& a = op.activations;
  for (int64_t p = panel_begin; p < panel_end; ++p) {
    for (int64_t t = 0; t < a.tiles(); ++t) {
      ForSubTiles<L>(a, t, 0, [&]<int N>(const Rows& rows) __attribute__((always_inline)) {
        DirectTile<L, kType, N>(op, p, rows);
      });
    }
    DirectRest<L, kType>(op, p);
  }
}

HR_KERNEL_INLINE bool IsDirect(const MatMul& op) {
  return DecodesFast(op.weights.dtype) || op.activations.rows <= kDirectRows;
}

template <typename L>
void AnyDirectPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFormat(op.weights.dtype,
             [&]<DType kType>() __attribute__((always_inline)) { DirectPanels<L, kType>(op, panel_begin, panel_end); });
}

// ---- decoded blocks

template <typename L>
struct Scratch {
  typename L::Group groups[kBlockGroups];
  alignas(64) float sums[kWideChunkRows][kPanelRows];
  alignas(64) float rest[kWideChunkRows][kPanelRows];
};

// Groups [first, first + count) of a panel, and what of its stream comes next.
struct Block {
  int64_t first;
  int count, offset, next_lines;
  const std::byte* next;
};

template <typename L, DType kType>
void UnpackBlock(typename L::Group* to, const std::byte* panel, int64_t groups, Block& block) {
  using Reader = typename L::template Reader<kType>;
  for (int half = 0; half < 2; ++half) {
    const Reader w(panel, half, groups);
    for (int g = 0; g < block.count; ++g) L::Unpack(w, block.first + g, to[g]);
    block.next = w.Ahead(block.first + block.count);
  }
  block.offset = Reader::Offset();
  block.next_lines = (Reader::kStepBytes + 63) / 64;
}

template <typename Weights, int N>
void BlockTile(Weights w, int count, Rows x, float (*sums)[kPanelRows]) {
  using L = typename Weights::L;
  for (w.half = 0; w.half < 2; ++w.half) {
    typename L::F acc[N];
    HR_UNROLL for (int n = 0; n < N; ++n) acc[n] = L::Load(sums[n] + 8 * w.half);
    AddTile<Weights, N>(w, count, x, acc);
    HR_UNROLL for (int n = 0; n < N; ++n) L::Store(sums[n] + 8 * w.half, acc[n]);
    x.prefetch = false;
  }
}

// Adds a decoded block to the sums of a chunk of rows.
template <typename L, GroupKind kKind, int kCodeMax>
void AddBlock(Scratch<L>& s, const Activations& a, int64_t chunk, const Block& block) {
  using Weights = typename L::template Unpacked<kKind, kCodeMax>;
  Weights w{s.groups, block.offset, block.next, block.next_lines, 0};
  for (w.half = 0; w.half < 2; ++w.half) AddRestGroups(w, a, chunk, block.first, block.count, s.rest);
  const int64_t first_tile = chunk * (kWideChunkRows / kTileColumns);
  for (int64_t t = first_tile; t < a.tiles() && t < first_tile + kWideChunkRows / kTileColumns; ++t) {
    ForSubTiles<L>(a, t, block.first, [&]<int N>(const Rows& rows) __attribute__((always_inline)) {
      BlockTile<Weights, N>(w, block.count, rows, s.sums + (rows.first_row - chunk * kWideChunkRows));
    });
  }
}

template <typename L>
void AnyAddBlock(Scratch<L>& s, const MatMul& op, int64_t chunk, const Block& block) {
  const PanelFormat format = FormatOf(op.weights.dtype);
  switch (format.kind) {
    case GroupKind::kPlain:
      if (L::HasSignedLines(format.code_max))
        return AddBlock<L, GroupKind::kPlain, 255>(s, op.activations, chunk, block);
      return AddBlock<L, GroupKind::kPlain, 31>(s, op.activations, chunk, block);
    case GroupKind::kMin:
      return AddBlock<L, GroupKind::kMin, 31>(s, op.activations, chunk, block);
    case GroupKind::kFactors:
      return AddBlock<L, GroupKind::kFactors, 63>(s, op.activations, chunk, block);
    case GroupKind::kFactorsAndMins:
      return AddBlock<L, GroupKind::kFactorsAndMins, 3>(s, op.activations, chunk, block);
  }
}

template <typename L>
void StoreSums(const MatMul& op, int64_t panel, int64_t chunk, const float (*sums)[kPanelRows]) {
  for (int half = 0; half < 2; ++half) {
    const int64_t row = panel * kPanelRows + 8 * half;
    for (int64_t r = 0; r < ChunkRows(op.activations, chunk); ++r) {
      StoreHalf<L>(op, chunk * kWideChunkRows + r, row, L::Load(sums[r] + 8 * half));
    }
  }
}

template <typename L>
void BlockPanel(Scratch<L>& s, const MatMul& op, int64_t panel) {
  const Activations& a = op.activations;
  const int64_t groups = a.groups();
  for (int64_t chunk = 0; chunk < a.chunks(); ++chunk) {
    ZeroRows(s.sums, ChunkRows(a, chunk));
    if (HasRest(a, chunk)) ZeroRows(s.rest, ChunkRows(a, chunk));
    for (int64_t g = 0; g < groups; g += kBlockGroups) {
      Block block{g, static_cast<int>(groups - g < kBlockGroups ? groups - g : kBlockGroups), 0, 0, nullptr};
      WithFormat(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
        UnpackBlock<L, kType>(s.groups, op.weights.data + panel * op.weights.panel_bytes, groups, block);
      });
      AnyAddBlock(s, op, chunk, block);
    }
    StoreSums<L>(op, panel, chunk, s.sums);
    if (HasRest(a, chunk)) StoreRest<L>(op, panel, chunk, s.rest);
  }
}

template <typename L>
HR_KERNEL_INLINE void MultiplyPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  if (IsDirect(op)) return AnyDirectPanels<L>(op, panel_begin, panel_end);
  Scratch<L> scratch;
  for (int64_t p = panel_begin; p < panel_end; ++p) BlockPanel(scratch, op, p);
}

}  // namespace headrace
