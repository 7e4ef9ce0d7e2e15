// Goal: every kernel table equals the scalar reference to the last bit: each weight type, every tile width and row
// remainder, odd lengths, three misalignments, attention over page borders; and the reference product agrees with exact
// arithmetic on the dequantised weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/canonical.h"
#include "kernels/test_matrices.h"
#include "tensor/half.h"

namespace headrace {
namespace {

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kF8E4M3, DType::kF8E5M2, DType::kQ4_0,
                            DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,   DType::kQ3_K,
                            DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kMXFP4};

TEST(MatMulTest, EveryTableTypeAndWidthEqualsTheReference) {
  Random random(1);
  for (DType dtype : kTypes) {
    const int64_t columns = Info(dtype).block_elements == 256 ? 512 : 160;
    for (int64_t rows : {1, 16, 47}) {
      const PackedFixture w(dtype, rows, columns, random);
      for (int64_t m = 1; m <= 26; m += m < 13 ? 1 : 6) {
        auto x = RandomFloats(random, static_cast<size_t>(m * columns));
        for (size_t i = 0; i < x.size(); i += 97) x[i] *= 30;  // outliers make wide groups
        const ActivationFixture expected_x(ReferenceKernels(), m, columns, x);
        const auto start = RandomFloats(random, static_cast<size_t>(m * rows));
        for (const bool accumulate : {false, true}) {
          std::vector<float> expected = start;
          ReferenceKernels().matmul({w.matrix, expected_x.view, expected.data(), rows, accumulate}, 0,
                                    w.matrix.panels());
          for (const KernelTable* table : UsableKernels()) {
            const ActivationFixture ours(*table, m, columns, x);
            const std::string what =
                std::string(table->name) + " " + std::string(Info(dtype).name) + " m=" + std::to_string(m);
            ExpectSameBits(ours.quants, expected_x.quants, what);
            ExpectSameBits(ours.scaled_sum, expected_x.scaled_sum, what);
            ExpectSameBits(ours.rest_quants, expected_x.rest_quants, what);
            ExpectSameBits(ours.rest_scaled_sum, expected_x.rest_scaled_sum, what);
            ExpectSameBits(ours.wide, expected_x.wide, what);
            std::vector<float> out = start;
            table->matmul({w.matrix, ours.view, out.data(), rows, accumulate}, 0, w.matrix.panels());
            ExpectSameBits(out, expected, what);
          }
        }
      }
    }
  }
}

TEST(MatMulTest, GateAndUpTogetherEqualTheReferencesProductsAndGate) {
  Random random(7);
  for (DType dtype : kTypes) {
    const int64_t columns = Info(dtype).block_elements == 256 ? 512 : 160;
    for (int64_t rows : {16, 47}) {
      const PackedFixture gate(dtype, rows, columns, random), up(dtype, rows, columns, random);
      for (int64_t m : {1, 12, 40, 110}) {
        auto x = RandomFloats(random, static_cast<size_t>(m * columns));
        for (size_t i = 0; i < x.size(); i += 97) x[i] *= 30;
        const ActivationFixture truth_x(ReferenceKernels(), m, columns, x);
        const auto floats = static_cast<size_t>(m * rows);
        std::vector<float> expected(floats), ups(floats), gelu(floats);
        ReferenceKernels().matmul({gate.matrix, truth_x.view, expected.data(), rows, false}, 0, gate.matrix.panels());
        ReferenceKernels().matmul({up.matrix, truth_x.view, ups.data(), rows, false}, 0, up.matrix.panels());
        ReferenceKernels().gelu_mul(expected.data(), ups.data(), m * rows, gelu.data());
        ReferenceKernels().silu_mul(expected.data(), ups.data(), m * rows, expected.data());
        for (const KernelTable* table : UsableKernels()) {
          const ActivationFixture ours(*table, m, columns, x);
          std::vector<float> out(floats), scratch(floats);
          const GateUp op{{gate.matrix, ours.view, out.data(), rows, false}, up.matrix, scratch.data()};
          for (const GateFunction function : {GateFunction::kSilu, GateFunction::kGelu}) {
            MultiplyGateUp(*table, op, function, 0, 1);
            MultiplyGateUp(*table, op, function, 1, gate.matrix.panels());
            ExpectSameBits(out, function == GateFunction::kSilu ? expected : gelu,
                           std::string(table->name) + " " + std::string(Info(dtype).name) + " m=" + std::to_string(m));
          }
        }
      }
    }
  }
}

// Blocks of groups that a kernel decodes at once, the last one narrower; chunks of rows with wide groups, the last one
// narrower; activations and results at any address.
TEST(MatMulTest, BlocksChunksAndMisalignmentsEqualTheReference) {
  Random random(8);
  for (DType dtype : kTypes) {
    const int64_t columns = Info(dtype).block_elements == 256 ? 1280 : 1312, rows = 39, m = 107;
    const PackedFixture w(dtype, rows, columns, random);
    for (size_t shift = 0; shift < 3; ++shift) {
      auto x = RandomFloats(random, static_cast<size_t>(m * columns) + shift);
      for (size_t i = 0; i < x.size(); i += 1 + 310 * (shift + 1)) x[i] *= 40;
      const ActivationFixture truth_x(ReferenceKernels(), m, columns, x, shift);
      std::vector<float> expected(static_cast<size_t>(m * rows) + shift);
      ReferenceKernels().matmul({w.matrix, truth_x.view, expected.data() + shift, rows, false}, 0, w.matrix.panels());
      for (const KernelTable* table : UsableKernels()) {
        const ActivationFixture ours(*table, m, columns, x, shift);
        std::vector<float> out(expected.size());
        table->matmul({w.matrix, ours.view, out.data() + shift, rows, false}, 0, 1);
        table->matmul({w.matrix, ours.view, out.data() + shift, rows, false}, 1, w.matrix.panels());
        ExpectSameBits(out, expected, std::string(table->name) + " " + std::string(Info(dtype).name));
      }
    }
  }
}

// Sums of 16 bits inside a kernel must hold the largest codes times the largest activations.
TEST(MatMulTest, ExtremeCodesAndActivationsEqualTheReference) {
  const int64_t columns = 512, rows = 16, m = 40;
  std::vector<float> values(static_cast<size_t>(rows * columns)), x(static_cast<size_t>(m * columns));
  // Each 16 columns have one element at one end of the codes and fifteen at the other.
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t row = i / columns;
    values[i] = ((i % 16 == row) != (row % 2 == 0)) ? 1.0f : -1.0f;
  }
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = i / columns % 2 == 0 ? 1.0f : i / columns % 3 == 0 ? -1.0f : values[i % values.size()];
  for (DType dtype : kTypes) {
    const PackedFixture w(dtype, rows, columns, values);
    for (const int64_t count : {int64_t{3}, m}) {
      const ActivationFixture truth_x(ReferenceKernels(), count, columns, x);
      std::vector<float> expected(static_cast<size_t>(count * rows)), out(expected.size());
      ReferenceKernels().matmul({w.matrix, truth_x.view, expected.data(), rows, false}, 0, 1);
      for (const KernelTable* table : UsableKernels()) {
        table->matmul({w.matrix, truth_x.view, out.data(), rows, false}, 0, 1);
        ExpectSameBits(out, expected, std::string(table->name) + " " + std::string(Info(dtype).name));
      }
    }
  }
}

// What a panel takes beyond the file's bytes is bounded: decoding is bound by memory.
TEST(PackTest, PanelsAreHardlyLargerThanTheFile) {
  for (DType dtype : kTypes) {
    const int64_t rows = 64, columns = 4096;
    const auto file = static_cast<double>(*RowBytes(dtype, columns) * rows);
    EXPECT_LE(static_cast<double>(PackedBytes(dtype, rows, columns)), 1.037 * file) << Info(dtype).name;
  }
}

TEST(MatMulTest, AResultNeverDependsOnTheNumberOfRows) {
  Random random(2);
  const int64_t rows = 64;
  for (DType dtype : kTypes) {
    const int64_t columns = Info(dtype).block_elements == 256 ? 768 : 576;
    const PackedFixture w(dtype, rows, columns, random);
    constexpr int64_t kRows = 131;  // more than one chunk of wide groups
    auto x = RandomFloats(random, static_cast<size_t>(kRows * columns));
    for (size_t i = 0; i < x.size(); i += 301) x[i] *= 50;
    for (const KernelTable* table : UsableKernels()) {
      const ActivationFixture all(*table, kRows, columns, x);
      std::vector<float> together(kRows * rows), alone(rows);
      table->matmul({w.matrix, all.view, together.data(), rows, false}, 0, 4);
      for (int64_t m = 0; m < kRows; ++m) {
        const ActivationFixture one(*table, 1, columns, {x.begin() + m * columns, x.begin() + (m + 1) * columns});
        table->matmul({w.matrix, one.view, alone.data(), rows, false}, 0, 3);
        table->matmul({w.matrix, one.view, alone.data(), rows, false}, 3, 4);
        ASSERT_EQ(std::memcmp(alone.data(), together.data() + m * rows, sizeof(float) * rows), 0)
            << table->name << " row " << m;
      }
    }
  }
}

// Blocks of rows, as workers share a prompt: each begins at a chunk, and its second planes lie among those of all.
TEST(MatMulTest, ABlockOfRowsGivesWhatAllRowsGive) {
  Random random(12);
  const int64_t rows = 37, m = 2 * kWideChunkRows + 50;
  for (DType dtype : kTypes) {
    const int64_t columns = Info(dtype).block_elements == 256 ? 512 : 320;
    const PackedFixture w(dtype, rows, columns, random);
    auto x = RandomFloats(random, static_cast<size_t>(m * columns));
    for (size_t i = 0; i < x.size(); i += 211) x[i] *= 50;
    for (const KernelTable* table : UsableKernels()) {
      const ActivationFixture all(*table, m, columns, x);
      std::vector<float> together(static_cast<size_t>(m * rows)), blocks(together.size());
      table->matmul({w.matrix, all.view, together.data(), rows, false}, 0, w.matrix.panels());
      for (int64_t first = 0; first < m; first += kWideChunkRows) {
        const Activations some = all.view.Rows(first, std::min<int64_t>(kWideChunkRows, m - first));
        table->matmul({w.matrix, some, blocks.data() + first * rows, rows, false}, 0, w.matrix.panels());
      }
      ExpectSameBits(blocks, together, std::string(table->name) + " " + std::string(Info(dtype).name));
    }
  }
}

// The last block of a scale is any number of columns, and so is a row: heads and columns of a panel end where they end.
TEST(MatMulTest, EightBitFloatsOfAnyNumberOfColumnsEqualTheReference) {
  Random random(12);
  const int64_t rows = 83;
  for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const int64_t columns : {1, 31, 127, 128, 129, 255, 257, 643}) {
      const PackedFixture w(dtype, rows, columns, random);
      std::vector<float> row(static_cast<size_t>(columns)), again(row);
      for (const int64_t m : {1, 2, 3, 5, 6, 13}) {
        const auto x = RandomFloats(random, static_cast<size_t>(m * columns + 3));
        Activations view;
        view.rows = m;
        view.columns = view.value_stride = columns;
        view.values = x.data() + m % 3;
        std::vector<float> expected(static_cast<size_t>(m * rows)), out(expected.size());
        ReferenceKernels().matmul({w.matrix, view, expected.data(), rows, false}, 0, w.matrix.panels());
        for (const KernelTable* table : UsableKernels()) {
          table->matmul({w.matrix, view, out.data(), rows, false}, 0, 1);
          table->matmul({w.matrix, view, out.data(), rows, false}, 1, w.matrix.panels());
          ExpectSameBits(out, expected, std::string(table->name) + " " + std::to_string(columns));
        }
        for (int64_t r = 0; r < rows; r += 41) {
          double exact = 0;
          w.Row(r, row);
          UnpackRow(w.matrix, r, again.data());
          ExpectSameBits(row, again, "unpacked");
          for (size_t k = 0; k < row.size(); ++k)
            exact += static_cast<double>(row[k]) * static_cast<double>(view.values[k]);
          ASSERT_NEAR(static_cast<double>(expected[static_cast<size_t>(r)]), exact, 1e-5) << columns;
        }
      }
    }
  }
}

TEST(ActivationsTest, WideGroupsKeepSixteenBits) {
  Random random(6);
  auto x = RandomFloats(random, 576);
  x[40] = 90;
  const ActivationFixture a(ReferenceKernels(), 1, 576, x);
  EXPECT_EQ(a.wide[1], 1);
  EXPECT_EQ(a.row_is_wide[0], 1);
  for (size_t i = 32; i < 64; ++i)
    EXPECT_NEAR(a.Value(0, 1, static_cast<int64_t>(i) - 32), static_cast<double>(x[i]), 90.0 / 127 / 254 / 1.9);
  EXPECT_EQ(a.wide[0], 0);
  const ActivationFixture zero(ReferenceKernels(), 1, 64, std::vector<float>(64, 0.0f));
  EXPECT_EQ(zero.row_is_wide[0], 0);
}

TEST(MatMulTest, TheReferenceAgreesWithExactArithmetic) {
  Random random(3);
  for (DType dtype : kTypes) {
    const int64_t columns = 512, rows = 20, m = 3;
    const PackedFixture w(dtype, rows, columns, random);
    const ActivationFixture x(ReferenceKernels(), m, columns, RandomFloats(random, m * columns));
    std::vector<float> out(m * rows), row(columns), again(columns);
    ReferenceKernels().matmul({w.matrix, x.view, out.data(), rows, false}, 0, w.matrix.panels());
    const bool is_float = !IsQuantised(dtype);
    for (int64_t r = 0; r < rows; ++r) {
      w.Row(r, row);
      UnpackRow(w.matrix, r, again.data());
      ExpectSameBits(row, again, std::string(Info(dtype).name) + " unpacked");
      for (int64_t i = 0; i < m; ++i) {
        double exact = 0;
        for (int64_t k = 0; k < columns; ++k) {
          const double value = is_float ? static_cast<double>(x.values[static_cast<size_t>(i * columns + k)])
                                        : x.Value(i, k / kGroup, k % kGroup);
          exact += value * static_cast<double>(row[static_cast<size_t>(k)]);
        }
        ASSERT_NEAR(static_cast<double>(out[static_cast<size_t>(i * rows + r)]), exact, 2e-5) << Info(dtype).name;
      }
    }
  }
}

TEST(RowKernelsTest, OddLengthsAndMisalignmentsEqualTheReference) {
  Random random(4);
  const KernelTable& truth = ReferenceKernels();
  for (int64_t n = 1; n <= 131; ++n) {
    for (size_t shift = 0; shift < 3; ++shift) {
      auto x = RandomFloats(random, static_cast<size_t>(n) + 4, 40.0f),
           y = RandomFloats(random, static_cast<size_t>(n) + 4);
      const float* a = x.data() + shift;
      const float* b = y.data() + shift;
      const size_t size = static_cast<size_t>(n);
      std::vector<float> norm(size), silu(size), gelu(size), exps(size);
      truth.rms_norm(a, b, 1e-5f, n, norm.data());
      truth.silu_mul(a, b, n, silu.data());
      truth.gelu_mul(a, b, n, gelu.data());
      const float top = truth.row_max(a, n);
      truth.exp_row(a, n, top, 1.7f, exps.data());
      for (const KernelTable* table : UsableKernels()) {
        std::vector<float> out(size);
        table->rms_norm(a, b, 1e-5f, n, out.data());
        ExpectSameBits(out, norm, std::string(table->name) + " rms_norm " + std::to_string(n));
        table->silu_mul(a, b, n, out.data());
        ExpectSameBits(out, silu, std::string(table->name) + " silu_mul " + std::to_string(n));
        table->gelu_mul(a, b, n, out.data());
        ExpectSameBits(out, gelu, std::string(table->name) + " gelu_mul " + std::to_string(n));
        ASSERT_EQ(table->row_max(a, n), top) << table->name;
        table->exp_row(a, n, top, 1.7f, out.data());
        ExpectSameBits(out, exps, std::string(table->name) + " exp_row " + std::to_string(n));
      }
    }
  }
}

TEST(RowKernelsTest, CanonicalExpIsAccurate) {
  for (int i = 0; i < 200'000; ++i) {
    const float x = -87.0f + 175.0f * static_cast<float>(i) / 200'000.0f;
    ASSERT_NEAR(static_cast<double>(CanonicalExp(x)) / std::exp(static_cast<double>(x)), 1.0, 3e-7) << x;
  }
}

TEST(RowKernelsTest, CanonicalGeluIsAccurate) {
  for (int i = 0; i < 200'000; ++i) {
    const float x = -12.0f + 24.0f * static_cast<float>(i) / 200'000.0f;
    const double d = static_cast<double>(x), u = std::sqrt(2 / 3.14159265358979323846) * (d + 0.044715 * d * d * d);
    const double exact = d / (1 + std::exp(-2 * u));
    // Near -12 the exponent is 150: its own rounding is the error. Below -5 the value is smaller than 1e-6.
    ASSERT_NEAR(static_cast<double>(CanonicalGelu(x)), exact, 1e-6 * std::abs(exact) + 1e-9) << x;
  }
  EXPECT_EQ(CanonicalGelu(60.0f), 60.0f);
  EXPECT_NEAR(CanonicalGelu(-60.0f), 0.0f, 1e-30f);
}

struct AttentionShape {
  int heads, head_dim;
};

// Pages of one KV head with random tokens, written by the reference.
struct PagesFixture {
  static constexpr int32_t kBlocks[] = {3, 0, 4, 1, 2, 5};
  AttentionShape shape;
  KvType type;
  int64_t page_bytes;
  // Pages start as NaN: what lies beyond the last token or before the window must never matter.
  std::vector<std::byte> k, v;
  std::vector<std::vector<float>> keys, values;

  // `outlier` stands in one channel of all keys.
  PagesFixture(AttentionShape shape_in, KvType type_in, int64_t tokens, Random& random, float outlier = 0)
      : shape(shape_in),
        type(type_in),
        page_bytes(KvPageBytes(type, shape.head_dim)),
        k(static_cast<size_t>(6 * page_bytes), std::byte{0xFF}),
        v(k) {
    for (int64_t t = 0; t < tokens; ++t) {
      keys.push_back(RandomFloats(random, static_cast<size_t>(shape.head_dim)));
      keys.back()[5] += outlier;
      values.push_back(RandomFloats(random, static_cast<size_t>(shape.head_dim)));
      const int64_t at = kBlocks[t / kPageTokens] * page_bytes;
      const KvSlot slot{
          keys.back().data(), values.back().data(), shape.head_dim, static_cast<int>(t % kPageTokens), type,
          k.data() + at,      v.data() + at};
      ReferenceKernels().store_kv(slot);
    }
  }

  Attention Op(const float* q, int rows, int64_t first, int64_t window) const {
    Attention op;
    op.queries = q;
    op.query_stride = op.out_stride = shape.heads * shape.head_dim;
    op.rows = rows;
    op.first_position = first;
    op.window = window;
    op.group_heads = shape.heads;
    op.head_dim = shape.head_dim;
    op.softmax_scale = 0.125f;
    op.kv_type = type;
    op.block_table = kBlocks;
    op.k_pages = k.data();
    op.v_pages = v.data();
    op.block_stride = page_bytes;
    return op;
  }
};

constexpr AttentionShape kAttentionShapes[] = {{3, 64}, {1, 16}, {4, 80}, {7, 128}, {2, 256}};

TEST(AttentionTest, EveryTableTurnsPairsAsTheReferenceDoes) {
  Random random(10);
  for (const int pairs : {1, 5, 8, 16, 24, 32, 40, 64, 128}) {
    for (const bool neighbours : {false, true}) {
      const auto n = static_cast<size_t>(pairs);
      const auto x = RandomFloats(random, 2 * n + 3), cosine = RandomFloats(random, n), sine = RandomFloats(random, n);
      std::vector<float> truth = x;
      ReferenceKernels().rotate({truth.data(), cosine.data(), sine.data(), pairs, neighbours});
      for (const KernelTable* table : UsableKernels()) {
        std::vector<float> turned = x;
        table->rotate({turned.data(), cosine.data(), sine.data(), pairs, neighbours});
        ExpectSameBits(turned, truth, std::string(table->name) + " pairs=" + std::to_string(pairs));
      }
    }
  }
}

TEST(AttentionTest, EveryTableStoresTheReferencesPages) {
  Random random(8);
  for (const AttentionShape shape : kAttentionShapes) {
    for (const KvType type : {KvType::kInt16, KvType::kInt8}) {
      for (const int slot : {0, 5, 63}) {
        auto k = RandomFloats(random, static_cast<size_t>(shape.head_dim)),
             v = RandomFloats(random, static_cast<size_t>(shape.head_dim));
        if (slot == 63) std::ranges::fill(v, 0.0f);
        std::vector<std::byte> truth_k(static_cast<size_t>(KvPageBytes(type, shape.head_dim))), truth_v = truth_k;
        ReferenceKernels().store_kv({k.data(), v.data(), shape.head_dim, slot, type, truth_k.data(), truth_v.data()});
        for (const KernelTable* table : UsableKernels()) {
          std::vector<std::byte> page_k(truth_k.size()), page_v(truth_k.size());
          table->store_kv({k.data(), v.data(), shape.head_dim, slot, type, page_k.data(), page_v.data()});
          ASSERT_EQ(page_k, truth_k) << table->name;
          ASSERT_EQ(page_v, truth_v) << table->name;
        }
      }
    }
  }
}

TEST(AttentionTest, EveryTableEqualsTheReferenceOverPageBordersHeadCountsAndWindows) {
  Random random(5);
  for (const AttentionShape shape : kAttentionShapes) {
    for (const KvType type : {KvType::kInt16, KvType::kInt8}) {
      for (const int64_t first : {0, 1, 60, 62, 63, 64, 126, 127, 130, 190, 300}) {
        const PagesFixture pages(shape, type, first + 16, random);
        for (const int rows : {1, 3, 8, 16}) {
          for (const int64_t window : {0, 1, 7, 64, 130}) {
            const size_t floats = static_cast<size_t>(rows * shape.heads * shape.head_dim);
            const auto q = RandomFloats(random, floats, 6.0f);
            std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(shape.heads, shape.head_dim)));
            Attention op = pages.Op(q.data(), rows, first, window);
            op.scratch = scratch.data();
            std::vector<float> truth(floats);
            op.out = truth.data();
            ReferenceKernels().attend(op);
            for (float x : truth) ASSERT_TRUE(std::isfinite(x));
            for (const KernelTable* table : UsableKernels()) {
              std::vector<float> out(floats);
              op.out = out.data();
              table->attend(op);
              ExpectSameBits(out, truth,
                             std::string(table->name) + " first=" + std::to_string(first) +
                                 " rows=" + std::to_string(rows) + " window=" + std::to_string(window));
            }
          }
        }
      }
    }
  }
}

TEST(AttentionTest, PagesInPartsMergeToTheWhole) {
  Random random(11);
  for (const AttentionShape shape : kAttentionShapes) {
    for (const KvType type : {KvType::kInt16, KvType::kInt8}) {
      for (const int64_t position : {70, 191, 300}) {
        const PagesFixture pages(shape, type, position + 1, random);
        for (const int64_t window : {0, 100}) {
          const auto floats = static_cast<size_t>(shape.heads * shape.head_dim);
          const auto q = RandomFloats(random, floats, 6.0f);
          std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(shape.heads, shape.head_dim)));
          Attention op = pages.Op(q.data(), 1, position, window);
          op.scratch = scratch.data();
          std::vector<float> truth(floats);
          op.out = truth.data();
          ReferenceKernels().attend(op);
          const int64_t end = position / kPageTokens + 1;
          const int64_t first = window > 0 && position + 1 > window ? (position + 1 - window) / kPageTokens : 0;
          for (const KernelTable* table : UsableKernels()) {
            std::vector<float> partials(static_cast<size_t>(end * shape.heads * PartialFloats(shape.head_dim)), NAN);
            std::vector<float> out(floats);
            op.partials = partials.data();
            op.out = nullptr;
            for (int64_t page = 0; page < end; page += 2) {
              op.first_page = page;
              op.end_page = std::min(end, page + 2);
              table->attend(op);
            }
            table->merge_attention({partials.data(), first, end, shape.heads, shape.head_dim, out.data()});
            ExpectSameBits(out, truth, std::string(table->name) + " position=" + std::to_string(position));
            op.partials = nullptr;
            op.out = truth.data();
          }
        }
      }
    }
  }
}

// How far the reference's output may lie from exact arithmetic: the largest error of any element.
double ErrorOfReference(const PagesFixture& pages, int64_t position, int64_t window, Random& random) {
  const AttentionShape shape = pages.shape;
  const auto q = RandomFloats(random, static_cast<size_t>(shape.heads * shape.head_dim), 6.0f);
  std::vector<float> out(q.size());
  Attention op = pages.Op(q.data(), 1, position, window);
  op.out = out.data();
  ReferenceKernels().attend(op);
  double largest = 0;
  for (int h = 0; h < shape.heads; ++h) {
    const auto first = static_cast<size_t>(position + 1 - window), end = static_cast<size_t>(position + 1);
    std::vector<double> exact(static_cast<size_t>(shape.head_dim)), scores;
    for (size_t t = first; t < end; ++t) {
      double score = 0;
      for (size_t d = 0; d < exact.size(); ++d)
        score += static_cast<double>(q[static_cast<size_t>(h) * exact.size() + d]) * 0.125 *
                 static_cast<double>(pages.keys[t][d]);
      scores.push_back(score);
    }
    const double top = std::ranges::max(scores);
    double sum = 0;
    for (size_t t = first; t < end; ++t) {
      const double p = std::exp(scores[t - first] - top);
      sum += p;
      for (size_t d = 0; d < exact.size(); ++d) exact[d] += p * static_cast<double>(pages.values[t][d]);
    }
    for (size_t d = 0; d < exact.size(); ++d) {
      const double error = static_cast<double>(out[static_cast<size_t>(h) * exact.size() + d]) - exact[d] / sum;
      largest = std::max(largest, std::abs(error));
    }
  }
  return largest;
}

TEST(AttentionTest, TheReferenceAgreesWithExactArithmetic) {
  Random random(9);
  for (const AttentionShape shape : kAttentionShapes) {
    for (const auto& [type, tolerance] : {std::pair{KvType::kInt16, 4e-4}, std::pair{KvType::kInt8, 2e-2}}) {
      const PagesFixture pages(shape, type, 201, random);
      EXPECT_LT(ErrorOfReference(pages, 200, 150, random), tolerance) << shape.head_dim;
    }
  }
}

TEST(AttentionTest, AnOutlierChannelOfKeysCostsInt8Little) {
  // The channel is the same in all keys, so that it changes no weight of softmax; 20 times the others it would make the
  // step of them all 20 times as large. Spread over the head it makes the step two to three times as large.
  for (const AttentionShape shape : {AttentionShape{3, 64}, AttentionShape{7, 128}, AttentionShape{2, 256}}) {
    double plain = 0, outlier = 0;
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      Random random(seed), same(seed);
      plain += ErrorOfReference(PagesFixture(shape, KvType::kInt8, 201, random), 200, 150, random);
      outlier += ErrorOfReference(PagesFixture(shape, KvType::kInt8, 201, same, 20), 200, 150, same);
    }
    EXPECT_LT(outlier, 5 * plain) << shape.head_dim;
  }
}

TEST(KernelTableTest, AnUnknownNameIsRefusedWithTheUsableOnes) {
  EXPECT_EQ((*ChooseKernels("reference"))->name, std::string("reference"));
  const auto refused = ChooseKernels("mmx");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("reference"), std::string::npos);
}

}  // namespace
}  // namespace headrace
