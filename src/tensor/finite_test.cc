// Goal: AllFinite says no exactly where DequantizeRow gives a NaN or an infinity, for every type that has kernels,
// every place of a scale and any length.
#include "tensor/finite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "tensor/dequantize.h"

namespace headrace {
namespace {

bool ValuesAreFinite(DType type, const std::vector<std::byte>& row, int64_t columns) {
  std::vector<float> values(static_cast<size_t>(columns));
  DequantizeRow(type, row.data(), columns, values.data());
  return std::ranges::all_of(values, [](float x) { return std::isfinite(x); });
}

TEST(FiniteTest, JudgesRandomBytesOfEveryTypeAsTheirValuesDo) {
  Random random(3);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    if (!Info(type).computable) continue;
    SCOPED_TRACE(Info(type).name);
    int finite = 0, not_finite = 0;
    for (int round = 0; round < 4000; ++round) {
      const int64_t columns = Info(type).block_elements * static_cast<int64_t>(1 + round % 5);
      std::vector<std::byte> row(*RowBytes(type, columns));
      // Mostly bytes whose numbers are finite, and now and then all bits of an exponent.
      for (std::byte& byte : row) {
        const uint64_t kind = random.Below(16);
        byte = kind == 0 ? std::byte(random.Below(256)) : kind < 4 ? std::byte{0xFF} : std::byte{0x77};
      }
      const bool expected = ValuesAreFinite(type, row, columns);
      // An infinite scale times a zero code is NaN, so the values show every one that is wrong.
      if (type != DType::kMXFP4) {
        ASSERT_EQ(AllFinite(type, row.data(), columns), expected) << round;
      } else if (AllFinite(type, row.data(), columns)) {
        ASSERT_TRUE(expected) << round;  // from 253 on small codes are finite, and refused
      }
      ++(expected ? finite : not_finite);
    }
    EXPECT_GT(finite, 10);
    EXPECT_GT(not_finite, 10);
  }
}

TEST(FiniteTest, FindsANotANumberAtEveryPlaceOfARowOfFloats) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    const int bytes = Info(type).block_bytes;
    for (size_t columns = 1; columns < 70; ++columns) {
      for (size_t bad = 0; bad < columns; ++bad) {
        std::vector<std::byte> row(columns * static_cast<size_t>(bytes));
        EXPECT_TRUE(AllFinite(type, row.data(), static_cast<int64_t>(columns)));
        for (int b = 0; b < bytes; ++b)
          row[bad * static_cast<size_t>(bytes) + static_cast<size_t>(b)] = std::byte{0xFF};
        EXPECT_FALSE(AllFinite(type, row.data(), static_cast<int64_t>(columns)));
      }
    }
  }
}

}  // namespace
}  // namespace headrace
