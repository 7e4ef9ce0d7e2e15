// Goal: half and bfloat16 conversions are exact for every half and correctly rounded for every float, equal to the
// compiler's own _Float16 and, where the CPU has F16C, to the instruction bit for bit, NaN payloads included.
#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace headrace {
namespace {

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

#if defined(__x86_64__)
bool HasF16c() { return __builtin_cpu_supports("f16c"); }
__attribute__((target("f16c"))) float HardwareHalfToFloat(uint16_t half) { return _cvtsh_ss(half); }
__attribute__((target("f16c"))) uint16_t HardwareFloatToHalf(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#else
bool HasF16c() { return false; }
float HardwareHalfToFloat(uint16_t) { return 0; }
uint16_t HardwareFloatToHalf(float) { return 0; }
#endif

TEST(HalfTest, EveryHalfIsExact) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto half = static_cast<uint16_t>(i);
    const float mine = HalfToFloat(half);
    if (std::isnan(mine)) {
      ASSERT_EQ((half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0, true) << i;
    } else {
      ASSERT_EQ(Bits(mine), Bits(static_cast<float>(std::bit_cast<_Float16>(half)))) << i;
      ASSERT_EQ(FloatToHalf(mine), half) << i;
    }
    if (HasF16c()) ASSERT_EQ(Bits(mine), Bits(HardwareHalfToFloat(half))) << i;
  }
}

void CheckFloatToHalf(uint32_t bits) {
  const float value = std::bit_cast<float>(bits);
  const uint16_t mine = FloatToHalf(value);
  if (!std::isnan(value)) ASSERT_EQ(mine, std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  if (HasF16c()) ASSERT_EQ(mine, HardwareFloatToHalf(value)) << std::hex << bits;
}

TEST(HalfTest, FloatsRoundToNearestEven) {
  Random random(7);
  for (int i = 0; i < 2'000'000; ++i) CheckFloatToHalf(static_cast<uint32_t>(random.Next()));
  // Every exponent, around each tie: the bits dropped are all zero, one half, or next to it.
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t low = 0; low < 0x8000; low += 0x0FFF) {
      for (uint32_t step = 0; step < 3; ++step) {
        const uint32_t bits = (exponent << 23) | (low + step);
        CheckFloatToHalf(bits);
        CheckFloatToHalf(bits | 0x80000000u);
        CheckFloatToHalf(bits | 0x00700000u);
      }
    }
  }
  for (uint32_t half = 0; half < 0x7C00; ++half) {  // the floats beside every midpoint between two halves
    const float low = HalfToFloat(static_cast<uint16_t>(half));
    const float high = half + 1 == 0x7C00 ? 65536.0f : HalfToFloat(static_cast<uint16_t>(half + 1));
    const uint32_t middle = Bits((low + high) / 2);
    for (uint32_t bits = middle - 1; bits <= middle + 1; ++bits) CheckFloatToHalf(bits);
  }
}

TEST(HalfTest, SpecialValues) {
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-INFINITY), 0xFC00);
  EXPECT_EQ(FloatToHalf(-0.0f), 0x8000);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0);
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(std::bit_cast<float>(0x7F800001u)), 0x7E00);  // a signalling NaN stays a NaN
}

TEST(Bf16Test, EveryValueIsExactAndRoundingIsToNearestEven) {
  for (uint32_t i = 0; i <= 0xFFFF; ++i) {
    const auto bf16 = static_cast<uint16_t>(i);
    const float value = Bf16ToFloat(bf16);
    ASSERT_EQ(Bits(value), i << 16);
    if (!std::isnan(value)) ASSERT_EQ(FloatToBf16(value), bf16);
  }
  const uint32_t one = Bits(1.0f);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(one + 0x7FFF)), one >> 16);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(one + 0x8000)), one >> 16);  // tie, even below
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(one + 0x8001)), (one >> 16) + 1);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(one + 0x18000)), (one >> 16) + 2);  // tie, even above
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x7F7FFFFFu)), 0x7F80);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::bit_cast<float>(0x7F800001u)))));
  Random random(8);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random.Next()));
    if (!std::isfinite(value)) continue;
    const double down = Bf16ToFloat(static_cast<uint16_t>(Bits(value) >> 16));
    const double chosen = Bf16ToFloat(FloatToBf16(value));
    // No other candidate is closer: truncation and its neighbour are the only two.
    if (std::isfinite(chosen)) ASSERT_LE(std::fabs(chosen - value), std::fabs(down - value));
  }
}

}  // namespace
}  // namespace headrace
