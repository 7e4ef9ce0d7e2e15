// Random packed weights and quantised activations, for tests of the kernels. Only tests include this.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kernels/formats.h"
#include "kernels/kernel_table.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace headrace {

inline std::vector<float> RandomFloats(Random& random, size_t n, float scale = 2.0f) {
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(random.Uniform() - 0.5) * scale;
  return out;
}

inline std::vector<float> RandomScales(Random& random, size_t n) {
  std::vector<float> out(n);
  for (float& x : out) x = 0.5f + static_cast<float>(random.Uniform());
  return out;
}

struct PackedFixture {
  std::vector<std::byte> file, packed;
  std::vector<float> scales;  // of 8-bit floats, [rows][blocks]
  PackedMatrix matrix;
  int64_t row_bytes;

  PackedFixture(DType dtype, int64_t rows, int64_t columns, Random& random)
      : PackedFixture(dtype, rows, columns, RandomFloats(random, static_cast<size_t>(rows * columns), 0.2f),
                      HasFloatScales(dtype) ? RandomScales(random, static_cast<size_t>(rows * ScaleBlocks(columns)))
                                            : std::vector<float>()) {}

  PackedFixture(DType dtype, int64_t rows, int64_t columns, const std::vector<float>& values,
                std::vector<float> scales_in = {})
      : scales(std::move(scales_in)) {
    row_bytes = static_cast<int64_t>(*RowBytes(dtype, columns));
    file.resize(static_cast<size_t>(rows * row_bytes));
    for (int64_t r = 0; r < rows; ++r) {
      QuantizeRow(dtype, values.data() + r * columns, columns, file.data() + r * row_bytes);
    }
    packed.resize(static_cast<size_t>(PackedBytes(dtype, rows, columns)) + 4096);  // prefetch may look ahead
    for (int64_t p = 0; p * kPanelRows < rows; ++p) {
      PackPanel(dtype, columns, file.data() + p * kPanelRows * row_bytes,
                std::min<int64_t>(kPanelRows, rows - p * kPanelRows), p, packed.data(),
                scales.empty() ? nullptr : scales.data() + p * kPanelRows * ScaleBlocks(columns));
    }
    matrix = DescribePacked(dtype, rows, columns, packed.data());
  }

  // What the file's row means.
  void Row(int64_t r, std::vector<float>& out) const {
    DequantizeRow(matrix.dtype, file.data() + r * row_bytes, matrix.columns, out.data());
    for (int64_t k = 0; k < matrix.columns && !scales.empty(); ++k)
      out[static_cast<size_t>(k)] *= scales[static_cast<size_t>(r * ScaleBlocks(matrix.columns) + k / kScaleColumns)];
  }
};

struct ActivationFixture {
  std::vector<float> values, scale, scaled_sum, rest_scale, rest_scaled_sum;
  std::vector<int8_t> quants, rest_quants;
  std::vector<int32_t> sum, rest_sum, rest_row, rest_first;
  std::vector<uint8_t> wide, row_is_wide;
  Activations view;

  ActivationFixture(const KernelTable& table, int64_t rows, int64_t columns, std::vector<float> x, size_t shift = 0)
      : values(std::move(x)) {
    const size_t n = static_cast<size_t>(rows * columns), groups = n / kGroup;
    quants.resize(n + kTileColumns * kGroup);
    rest_quants.resize(n + kTileColumns * kGroup);
    for (auto* v : {&scale, &scaled_sum, &rest_scale, &rest_scaled_sum}) v->resize(groups);
    for (auto* v : {&sum, &rest_sum, &rest_row}) v->resize(groups);
    rest_first.resize(static_cast<size_t>((rows / kWideChunkRows + 1) * (columns / kGroup + 1)));
    wide.resize(groups);
    row_is_wide.resize(static_cast<size_t>(rows));
    view = Activations{rows,
                       columns,
                       values.data() + shift,
                       columns,
                       1.0f,
                       quants.data(),
                       scale.data(),
                       scaled_sum.data(),
                       sum.data(),
                       wide.data(),
                       row_is_wide.data(),
                       rest_quants.data(),
                       rest_scale.data(),
                       rest_scaled_sum.data(),
                       rest_sum.data(),
                       rest_row.data(),
                       rest_first.data()};
    for (int64_t r = 0; r < rows; ++r) table.quantize_row(view, r);
    for (int64_t c = 0; c < view.chunks(); ++c) QuantizeWideGroups(table, view, c);
  }

  // The entry of (row, group) in the second planes; -1: none.
  int64_t Entry(int64_t row, int64_t group) const {
    const int32_t* first = rest_first.data() + row / kWideChunkRows * (view.groups() + 1) + group;
    for (int64_t e = first[0]; e < first[1]; ++e) {
      if (rest_row[static_cast<size_t>(e)] == row % kWideChunkRows) return e;
    }
    return -1;
  }

  // What element i of the group stands for.
  double Value(int64_t row, int64_t group, int64_t i) const {
    const int64_t at = view.GroupIndex(row, group), entry = Entry(row, group);
    double value = static_cast<double>(scale[static_cast<size_t>(at)]) * quants[static_cast<size_t>(at * kGroup + i)];
    if (entry >= 0) {
      value += static_cast<double>(rest_scale[static_cast<size_t>(entry)]) *
               rest_quants[static_cast<size_t>(entry * kGroup + i)];
    }
    return value;
  }
};

template <typename T>
void ExpectSameBits(const std::vector<T>& a, const std::vector<T>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << what;
}

}  // namespace headrace
