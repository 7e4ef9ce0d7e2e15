// Goal: sizes of rows are exact, impossible rows are errors and never a wrapped number, and every type has a name.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <set>

namespace headrace {
namespace {

TEST(DTypeTest, EveryTypeHasItsOwnNameAndASaneBlock) {
  std::set<std::string_view> names;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DTypeInfo& info = Info(static_cast<DType>(i));
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_GT(info.block_elements, 0) << info.name;
    EXPECT_GT(info.block_bytes, 0) << info.name;
  }
}

TEST(DTypeTest, InfoFollowsTheEnum) {
  EXPECT_EQ(Info(DType::kF32).name, "F32");
  EXPECT_EQ(Info(DType::kF8E5M2).name, "F8_E5M2");
  EXPECT_EQ(Info(DType::kQ8_1).name, "Q8_1");
  EXPECT_EQ(Info(DType::kQ6_K).name, "Q6_K");
  EXPECT_EQ(Info(DType::kIQ4_XS).name, "IQ4_XS");
  EXPECT_EQ(Info(DType::kQ1_0).name, "Q1_0");
}

TEST(DTypeTest, RowBytesCountsWholeBlocks) {
  EXPECT_EQ(*RowBytes(DType::kF32, 576), 2304u);
  EXPECT_EQ(*RowBytes(DType::kQ4_1, 576), 576u / 32 * 20);
  EXPECT_EQ(*RowBytes(DType::kQ6_K, 512), 420u);
  EXPECT_EQ(*RowBytes(DType::kBF16, 0), 0u);
}

TEST(DTypeTest, ImpossibleRowsAreErrors) {
  EXPECT_EQ(RowBytes(DType::kQ4_0, 33).error().code, ErrorCode::kCorruptData);
  EXPECT_FALSE(RowBytes(DType::kQ4_K, 128));
  EXPECT_FALSE(RowBytes(DType::kF32, -1));
  EXPECT_FALSE(RowBytes(DType::kF32, INT64_MAX));
  EXPECT_FALSE(RowBytes(DType::kF64, INT64_MAX / 8 + 1));
  EXPECT_TRUE(RowBytes(DType::kF64, INT64_MAX / 8));
}

TEST(DTypeTest, TheListOfComputableTypesIsForPeople) {
  EXPECT_EQ(ComputableTypeNames(),
            "F32, F16, BF16, F8_E4M3, F8_E5M2, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, "
            "MXFP4");
}

}  // namespace
}  // namespace headrace
