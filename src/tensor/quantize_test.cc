// Goal: what the reference quantisers store reads back within the step of the type, for rows of several kinds, and
// whole values that the type can hold come back exactly.
#include "tensor/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "tensor/dequantize.h"

namespace headrace {
namespace {

std::vector<float> RoundTrip(DType type, const std::vector<float>& row) {
  const auto columns = static_cast<int64_t>(row.size());
  std::vector<std::byte> stored(*RowBytes(type, columns));
  QuantizeRow(type, row.data(), columns, stored.data());
  std::vector<float> back(row.size());
  DequantizeRow(type, stored.data(), columns, back.data());
  return back;
}

struct ErrorBound {
  DType type;
  double of_span;             // largest error as a fraction of the largest magnitude or, from a minimum, of the range
  double absolute = 0x1p-24;  // half a step of the smallest values
};

// Half a step, the half precision of the scale, and for the K types the rounding of the 6-bit scales (1/63 of the
// largest, times the code) and minimums. Q4_0, Q5_0 and Q3_K clip the far end by one step.
constexpr ErrorBound kBounds[] = {
    {DType::kF32, 0.0},
    {DType::kF16, 0x1p-11},
    {DType::kBF16, 0x1p-8},
    {DType::kQ4_0, 1.02 / 8},
    {DType::kQ4_1, 0.52 / 15},
    {DType::kQ5_0, 1.02 / 16},
    {DType::kQ5_1, 0.53 / 31},
    {DType::kQ8_0, 0.56 / 127},
    {DType::kQ4_K, 0.06},
    {DType::kQ5_K, 0.045},
    {DType::kQ6_K, 0.53 / 31 + 1.0 / 127},
    {DType::kQ2_K, 0.32},
    {DType::kQ3_K, 0.30},
    {DType::kIQ4_NL, 0.2},
    {DType::kMXFP4, 0.17},
    {DType::kF8E4M3, 0x1p-4, 0x1p-10},
    {DType::kF8E5M2, 0x1p-3, 0x1p-17},
};

TEST(QuantizeTest, RoundTripStaysWithinTheStep) {
  Random random(3);
  for (const ErrorBound& bound : kBounds) {
    for (const double offset : {0.0, 0.7, -3.0}) {
      for (int round = 0; round < 50; ++round) {
        std::vector<float> row(512);
        for (float& value : row) {
          value = static_cast<float>((random.Uniform() - 0.5) * std::pow(10.0, round % 5 - 2) + offset);
        }
        const std::vector<float> back = RoundTrip(bound.type, row);
        const auto [least, most] = std::ranges::minmax(row);
        // The span that the codes of a block must cover always includes zero, except where a minimum is stored.
        const double span =
            std::max<double>(std::max(0.0f, most) - std::min(0.0f, least), std::max(std::fabs(least), std::fabs(most)));
        for (size_t j = 0; j < row.size(); ++j) {
          ASSERT_NEAR(back[j], row[j], bound.of_span * span + bound.absolute)
              << Info(bound.type).name << " element " << j;
        }
      }
    }
  }
}

TEST(QuantizeTest, ValuesOnTheGridComeBackExactly) {
  for (const ErrorBound& bound : kBounds) {
    std::vector<float> row(256);
    // Codes -8..7: on the grid of every type once -8 (or 15 above the minimum) sets the scale to a power of two.
    for (size_t j = 0; j < row.size(); ++j) row[j] = static_cast<float>(static_cast<int>(j % 16) - 8);
    const bool from_min = bound.type == DType::kQ4_0 || bound.type == DType::kQ4_1 || bound.type == DType::kF16 ||
                          bound.type == DType::kBF16 || bound.type == DType::kF32 || bound.type == DType::kQ5_0;
    const std::vector<float> back = RoundTrip(bound.type, row);
    if (from_min) EXPECT_EQ(back, row) << Info(bound.type).name;
  }
}

// The compiler once broke the search for the largest magnitude when it came first and was negative.
TEST(QuantizeTest, TheLargestMagnitudeMayComeFirstAndBeNegative) {
  std::vector<float> row(32, 0.25f);
  row[0] = -1.0f;
  row[7] = 0.9f;
  for (const DType type : {DType::kQ4_0, DType::kQ5_0}) EXPECT_EQ(RoundTrip(type, row)[0], -1.0f) << Info(type).name;
  EXPECT_NEAR(RoundTrip(DType::kQ8_0, row)[0], -1.0f, 0.01);
}

TEST(QuantizeTest, ZerosStayZeros) {
  const std::vector<float> zeros(256, 0.0f);
  for (const ErrorBound& bound : kBounds) {
    for (const float value : RoundTrip(bound.type, zeros)) ASSERT_EQ(value, 0.0f) << Info(bound.type).name;
  }
}

}  // namespace
}  // namespace headrace
