// Goal: the sampler's passes give the reference's bits on every instruction set, for every remainder and alignment,
// with values that are no numbers, and write nothing behind what they return.
#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/kernel_table.h"

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 63, 64, 65, 100, 127, 128, 129, 191, 1000};

std::vector<float> RandomRow(Random& random, int64_t n) {
  std::vector<float> row(static_cast<size_t>(n));
  for (float& x : row) {
    const uint64_t kind = random.Below(40);
    x = kind == 0   ? -kInfinity
        : kind == 1 ? std::numeric_limits<float>::quiet_NaN()
        : kind == 2 ? 1.5f
        : kind == 3 ? -0.0f
                    : static_cast<float>(random.Uniform() * 20 - 12);
  }
  return row;
}

// Equal as numbers: -0 and +0 may stand for each other.
void ExpectEqual(const std::vector<float>& a, const std::vector<float>& b, const char* name, int64_t n) {
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i]) << name << " n=" << n << " at " << i;
}

class SamplingKernelsTest : public testing::Test {
 protected:
  // test(table, reference, row) for every table, size and three misalignments.
  template <typename Test>
  void ForAll(Test test) {
    for (const KernelTable* table : UsableKernels()) {
      for (const int64_t n : kSizes) {
        for (size_t shift = 0; shift < 3; ++shift) {
          Random random(static_cast<uint64_t>(n) * 3 + shift);
          std::vector<float> padded = RandomRow(random, n + static_cast<int64_t>(shift) + 64);
          test(*table, padded.data() + shift, n);
        }
      }
    }
  }
  static size_t Blocks(int64_t n) { return static_cast<size_t>((n + kSampleBlock - 1) / kSampleBlock); }
  static std::vector<float> Maxima(const float* x, int64_t n) {
    std::vector<float> maxima(Blocks(n));
    kReferenceSampling.block_max(x, n, maxima.data());
    return maxima;
  }
};

TEST_F(SamplingKernelsTest, BlockMax) {
  ForAll([&](const KernelTable& table, const float* x, int64_t n) {
    std::vector<float> maxima(Blocks(n));
    table.sampling->block_max(x, n, maxima.data());
    ExpectEqual(maxima, Maxima(x, n), table.name, n);
  });
}

TEST_F(SamplingKernelsTest, BlockMaxOfNoNumberIsMinusInfinity) {
  const std::vector<float> row(70, std::numeric_limits<float>::quiet_NaN());
  for (const KernelTable* table : UsableKernels()) {
    float maxima[2] = {0, 0};
    table->sampling->block_max(row.data(), 70, maxima);
    EXPECT_EQ(maxima[0], -kInfinity) << table->name;
    EXPECT_EQ(maxima[1], -kInfinity) << table->name;
  }
}

TEST_F(SamplingKernelsTest, ExpBlocks) {
  ForAll([&](const KernelTable& table, const float* x, int64_t n) {
    const auto size = static_cast<size_t>(n);
    std::vector<float> out(size + 1, -7), expected(size + 1, -7);
    std::vector<double> sums(Blocks(n) + 1, -7), expected_sums(Blocks(n) + 1, -7);
    for (const float least : {-3e38f, -2.0f}) {
      table.sampling->exp_blocks(x, n, 8.0f, 0.7f, least, out.data(), sums.data());
      kReferenceSampling.exp_blocks(x, n, 8.0f, 0.7f, least, expected.data(), expected_sums.data());
      for (size_t i = 0; i <= size; ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(expected[i])) << table.name << n;
      for (size_t b = 0; b < sums.size(); ++b)
        ASSERT_EQ(std::bit_cast<uint64_t>(sums[b]), std::bit_cast<uint64_t>(expected_sums[b])) << table.name << n;
    }
  });
}

TEST_F(SamplingKernelsTest, Tally) {
  ForAll([&](const KernelTable& table, const float* x, int64_t n) {
    const std::vector<float> maxima = Maxima(x, n);
    for (const float least : {0.0f, 1.5f, 7.5f, 100.0f}) {
      std::vector<double> sums(Blocks(n) + 1, -7), expected(Blocks(n) + 1, -7);
      const int64_t count = kReferenceSampling.tally(x, maxima.data(), n, least, expected.data());
      ASSERT_EQ(table.sampling->tally(x, maxima.data(), n, least, sums.data()), count) << table.name << n;
      ASSERT_EQ(table.sampling->tally(x, maxima.data(), n, least, nullptr), count) << table.name << n;
      for (size_t b = 0; b < sums.size(); ++b) ASSERT_EQ(sums[b], expected[b]) << table.name << n;
    }
  });
}

TEST_F(SamplingKernelsTest, Collect) {
  ForAll([&](const KernelTable& table, const float* x, int64_t n) {
    const std::vector<float> maxima = Maxima(x, n);
    for (const float low : {-kInfinity, -3.0f, 1.5f, 100.0f}) {
      std::vector<float> values(static_cast<size_t>(n) + 1, -7), expected(static_cast<size_t>(n) + 1, -7);
      std::vector<int32_t> ids(static_cast<size_t>(n) + 1, -7), expected_ids(static_cast<size_t>(n) + 1, -7);
      const int64_t count =
          kReferenceSampling.collect(x, maxima.data(), n, low, 6.0f, 1000, expected.data(), expected_ids.data());
      ASSERT_EQ(table.sampling->collect(x, maxima.data(), n, low, 6.0f, 1000, values.data(), ids.data()), count)
          << table.name << n;
      ASSERT_EQ(ids, expected_ids) << table.name << n;
      ExpectEqual(values, expected, table.name, n);
    }
  });
}

}  // namespace
}  // namespace headrace
