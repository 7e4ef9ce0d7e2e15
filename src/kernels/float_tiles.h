// The product of weights that are floats, in the operations of matmul.h, once for all instruction sets. Over a class L
// of an ISA file's unnamed namespace, so that each instance is local to that file:
//   Column: 16 rows of one column;  Load<kType>(p), Zero, Store;  AddTimes(w, x, sum): sum + w * x, fused, for a number
//   or a column x
//   kTileRows, PanelsAtOnce(rows): how many sums the registers hold
#pragma once

#include "kernels/formats.h"
#include "kernels/matmul.h"

namespace headrace {

constexpr int kFloatPrefetchBytes = 3072;

template <typename L, int P, int N>
struct FloatSums {
  typename L::Column v[P][N];

  HR_KERNEL_INLINE FloatSums() {
    HR_UNROLL for (int p = 0; p < P; ++p) { HR_UNROLL for (int n = 0; n < N; ++n) v[p][n] = L::Zero(); }
  }
};

// P panels, which begin at w[p], times N rows, for columns [k, end).
template <typename L, DType kType, int P, int N>
HR_KERNEL_INLINE void AddColumns(const std::byte* const* w, const float* x, int64_t stride, int64_t k, int64_t end,
                                 FloatSums<L, P, N>& sums) {
  constexpr int kColumnBytes = kPanelRows * FloatBytes(kType);
  for (; k < end; ++k) {
    HR_UNROLL for (int p = 0; p < P; ++p) {
      const std::byte* at = w[p] + k * kColumnBytes;
      __builtin_prefetch(at + kFloatPrefetchBytes);
      const typename L::Column column = L::template Load<kType>(at);
      HR_UNROLL for (int n = 0; n < N; ++n) { sums.v[p][n] = L::AddTimes(column, x[n * stride + k], sums.v[p][n]); }
    }
  }
}

// P panels times N rows from `row`: P * N chains hide the latency of the multiply-add.
template <typename L, DType kType, int P, int N>
[[gnu::noinline]] void FloatTile(const MatMul& op, int64_t panel, int64_t row) {
  const Activations& a = op.activations;
  const float* x = a.values + row * a.value_stride;
  const std::byte *head[P], *w[P];
  HR_UNROLL for (int p = 0; p < P; ++p) {
    head[p] = op.weights.data + (panel + p) * op.weights.panel_bytes;
    w[p] = head[p] + FloatHeadBytes(kType, a.columns);
  }
  FloatSums<L, P, N> acc;
  if constexpr (HasFloatScales(kType)) {
    for (int64_t k = 0; k < a.columns; k += kScaleColumns) {
      FloatSums<L, P, N> part;
      const int64_t end = k + kScaleColumns < a.columns ? k + kScaleColumns : a.columns;
      AddColumns<L, kType, P, N>(w, x, a.value_stride, k, end, part);
      HR_UNROLL for (int p = 0; p < P; ++p) {
        const auto scale = L::template Load<DType::kF32>(head[p] + FloatHeadBytes(kType, k));
        HR_UNROLL for (int n = 0; n < N; ++n) acc.v[p][n] = L::AddTimes(scale, part.v[p][n], acc.v[p][n]);
      }
    }
  } else {
    AddColumns<L, kType, P, N>(w, x, a.value_stride, 0, a.columns, acc);
  }
  HR_UNROLL for (int p = 0; p < P; ++p) {
    HR_UNROLL for (int n = 0; n < N; ++n) L::Store(op, row + n, panel + p, acc.v[p][n]);
  }
}

// As many panels at once as N rows, which are all, leave registers and chains for. The first panel that is left.
template <typename L, DType kType, int N>
HR_KERNEL_INLINE int64_t WidePanels(const MatMul& op, int64_t panel, int64_t panel_end) {
  constexpr int kPanels = L::PanelsAtOnce(N);
  if constexpr (kPanels > 1) {
    if (op.activations.rows == N) {
      for (; panel + kPanels <= panel_end; panel += kPanels) FloatTile<L, kType, kPanels, N>(op, panel, 0);
    }
    return WidePanels<L, kType, N + 1>(op, panel, panel_end);
  } else {
    return panel;
  }
}

// The next N rows, or all that are left.
template <typename L, DType kType, int N>
HR_KERNEL_INLINE void RowsOf(const MatMul& op, int64_t panel, int64_t row) {
  if constexpr (N > 1) {
    if (op.activations.rows - row < N) return RowsOf<L, kType, N - 1>(op, panel, row);
  }
  FloatTile<L, kType, 1, N>(op, panel, row);
}

template <typename L>
HR_KERNEL_INLINE void FloatPanels(const MatMul& op, int64_t panel_begin, int64_t panel_end) {
  WithFloatType(op.weights.dtype, [&]<DType kType>() __attribute__((always_inline)) {
    for (int64_t p = WidePanels<L, kType, 1>(op, panel_begin, panel_end); p < panel_end; ++p) {
      for (int64_t row = 0; row < op.activations.rows; row += L::kTileRows) RowsOf<L, kType, L::kTileRows>(op, p, row);
    }
  });
}

}  // namespace headrace
