#include "tensor/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/dequantize.h"
#include "tensor/half.h"

namespace headrace {
namespace {

void StoreU16(uint8_t* p, uint16_t value) {
  p[0] = static_cast<uint8_t>(value);
  p[1] = static_cast<uint8_t>(value >> 8);
}
// Stores the nearest half and returns what a reader will see.
float StoreHalf(uint8_t* p, float value) {
  const uint16_t half = FloatToHalf(value);
  StoreU16(p, half);
  return HalfToFloat(half);
}
float Inverse(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }
// Nearest integer in [low, high]; ties away from zero.
int Nearest(float value, int low, int high) {
  const float bounded = std::clamp(value, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>(bounded < 0.0f ? bounded - 0.5f : bounded + 0.5f);
}
// With its sign. The magnitude has a variable of its own because clang 19.1 at -O3, once the loop is unrolled, drops
// the second fabs of `fabs(values[j]) > fabs(largest)` and returns a wrong element.
float LargestMagnitude(const float* values, int count) {
  float largest = 0.0f;
  float magnitude = 0.0f;
  for (int j = 0; j < count; ++j) {
    const float candidate = std::fabs(values[j]);
    if (candidate > magnitude) {
      magnitude = candidate;
      largest = values[j];
    }
  }
  return largest;
}

void StoreNibbles(const int* q, uint8_t* nibbles) {
  for (int j = 0; j < 16; ++j) nibbles[j] = static_cast<uint8_t>((q[j] & 0xF) | ((q[j + 16] & 0xF) << 4));
}
void StoreFifthBits(const int* q, uint8_t* high) {
  std::fill_n(high, 4, uint8_t{0});
  for (int j = 0; j < 32; ++j) high[j / 8] = static_cast<uint8_t>(high[j / 8] | (((q[j] >> 4) & 1) << (j % 8)));
}

// Q4_0 and Q5_0: the element of largest magnitude becomes the lowest code, -2^(bits - 1).
template <int kBits>
void BlockSymmetric(const float* in, uint8_t* block) {
  constexpr int kHalfRange = 1 << (kBits - 1);
  const float scale = StoreHalf(block, LargestMagnitude(in, 32) / -static_cast<float>(kHalfRange));
  const float inverse = Inverse(scale);
  int q[32];
  for (int j = 0; j < 32; ++j) q[j] = Nearest(in[j] * inverse, -kHalfRange, kHalfRange - 1) + kHalfRange;
  if constexpr (kBits == 5) StoreFifthBits(q, block + 2);
  StoreNibbles(q, block + (kBits == 5 ? 6 : 2));
}

// Q4_1 and Q5_1: codes count up from the block's minimum.
template <int kBits>
void BlockFromMin(const float* in, uint8_t* block) {
  constexpr int kCodeMax = (1 << kBits) - 1;
  const auto [least, most] = std::minmax_element(in, in + 32);
  const float min = StoreHalf(block + 2, *least);
  const float scale = StoreHalf(block, (*most - min) / static_cast<float>(kCodeMax));
  const float inverse = Inverse(scale);
  int q[32];
  for (int j = 0; j < 32; ++j) q[j] = Nearest((in[j] - min) * inverse, 0, kCodeMax);
  if constexpr (kBits == 5) StoreFifthBits(q, block + 4);
  StoreNibbles(q, block + (kBits == 5 ? 8 : 4));
}

void BlockQ8_0(const float* in, uint8_t* block) {
  const float scale = StoreHalf(block, std::fabs(LargestMagnitude(in, 32)) / 127.0f);
  const float inverse = Inverse(scale);
  for (int j = 0; j < 32; ++j) block[2 + j] = static_cast<uint8_t>(Nearest(in[j] * inverse, -127, 127));
}

// The inverse of UnpackScaleMin.
void PackScaleMins(const std::array<int, 8>& scales, const std::array<int, 8>& mins, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scales[i] | ((scales[i + 4] >> 4) << 6));
    packed[i + 4] = static_cast<uint8_t>(mins[i] | ((mins[i + 4] >> 4) << 6));
    packed[i + 8] = static_cast<uint8_t>((scales[i + 4] & 0xF) | ((mins[i + 4] & 0xF) << 4));
  }
}

// Q4_K and Q5_K: eight groups of 32, each with a 6-bit scale and a 6-bit minimum below zero.
template <int kBits>
void BlockScaleMin(const float* in, uint8_t* block) {
  constexpr int kCodeMax = (1 << kBits) - 1;
  constexpr int kSixBitsMax = 63;
  float wanted_scale[8];
  float wanted_min[8];  // how far below zero
  for (int g = 0; g < 8; ++g) {
    const auto [least, most] = std::minmax_element(in + g * 32, in + g * 32 + 32);
    wanted_min[g] = std::max(0.0f, -*least);
    wanted_scale[g] = std::max(0.0f, *most + wanted_min[g]) / static_cast<float>(kCodeMax);
  }
  const float scale = StoreHalf(block, *std::max_element(wanted_scale, wanted_scale + 8) / kSixBitsMax);
  const float min_scale = StoreHalf(block + 2, *std::max_element(wanted_min, wanted_min + 8) / kSixBitsMax);
  std::array<int, 8> scales;
  std::array<int, 8> mins;
  uint8_t* high = block + 16;
  uint8_t* nibbles = block + (kBits == 5 ? 48 : 16);
  std::fill_n(block + 16, kBits == 5 ? 160 : 128, uint8_t{0});
  for (int g = 0; g < 8; ++g) {
    scales[g] = Nearest(wanted_scale[g] * Inverse(scale), 0, kSixBitsMax);
    mins[g] = Nearest(wanted_min[g] * Inverse(min_scale), 0, kSixBitsMax);
    const float d = scale * static_cast<float>(scales[g]);
    const float m = min_scale * static_cast<float>(mins[g]);
    const float inverse = Inverse(d);
    for (int j = 0; j < 32; ++j) {
      const int q = Nearest((in[g * 32 + j] + m) * inverse, 0, kCodeMax);
      uint8_t& byte = nibbles[g / 2 * 32 + j];
      byte = static_cast<uint8_t>(byte | ((q & 0xF) << (g % 2 * 4)));
      if constexpr (kBits == 5) high[j] = static_cast<uint8_t>(high[j] | ((q >> 4) << g));
    }
  }
  PackScaleMins(scales, mins, block + 4);
}

// Sixteen groups of 16, each with a signed 8-bit scale.
void BlockQ6_K(const float* in, uint8_t* block) {
  float largest = 0.0f;
  for (int g = 0; g < 16; ++g) largest = std::max(largest, std::fabs(LargestMagnitude(in + g * 16, 16)));
  const float scale = StoreHalf(block + 208, largest / 31.0f / 127.0f);
  std::fill_n(block, 192, uint8_t{0});
  for (int g = 0; g < 16; ++g) {
    const float wanted = std::fabs(LargestMagnitude(in + g * 16, 16)) / 31.0f;
    const int group_scale = Nearest(wanted * Inverse(scale), 0, 127);
    block[192 + g] = static_cast<uint8_t>(group_scale);
    const float inverse = Inverse(scale * static_cast<float>(group_scale));
    for (int j = 0; j < 16; ++j) {
      const int element = g * 16 + j;
      const int q = Nearest(in[element] * inverse, -32, 31) + 32;
      const int half = element / 128;
      const int run = element / 32 % 4;
      uint8_t& low = block[half * 64 + run % 2 * 32 + element % 32];
      uint8_t& high = block[128 + half * 32 + element % 32];
      low = static_cast<uint8_t>(low | ((q & 0xF) << (run / 2 * 4)));
      high = static_cast<uint8_t>(high | ((q >> 4) << (run * 2)));
    }
  }
}

// Sixteen groups of 16, each with a 4-bit scale and a 4-bit minimum below zero.
void BlockQ2_K(const float* in, uint8_t* block) {
  float wanted_scale[16];
  float wanted_min[16];  // how far below zero
  for (int g = 0; g < 16; ++g) {
    const auto [least, most] = std::minmax_element(in + g * 16, in + g * 16 + 16);
    wanted_min[g] = std::max(0.0f, -*least);
    wanted_scale[g] = std::max(0.0f, *most + wanted_min[g]) / 3.0f;
  }
  const float scale = StoreHalf(block + 80, *std::max_element(wanted_scale, wanted_scale + 16) / 15.0f);
  const float min_scale = StoreHalf(block + 82, *std::max_element(wanted_min, wanted_min + 16) / 15.0f);
  std::fill_n(block, 80, uint8_t{0});
  for (int i = 0; i < 256; ++i) {
    const int g = i / 16;
    const int group_scale = Nearest(wanted_scale[g] * Inverse(scale), 0, 15);
    const int group_min = Nearest(wanted_min[g] * Inverse(min_scale), 0, 15);
    block[g] = static_cast<uint8_t>(group_scale | (group_min << 4));
    const float above = in[i] + min_scale * static_cast<float>(group_min);
    const int q = Nearest(above * Inverse(scale * static_cast<float>(group_scale)), 0, 3);
    uint8_t& byte = block[16 + i / 128 * 32 + i % 32];
    byte = static_cast<uint8_t>(byte | (q << (i / 32 % 4 * 2)));
  }
}

// Sixteen groups of 16, each with a signed 6-bit scale: the element of largest magnitude becomes the lowest code, -4.
void BlockQ3_K(const float* in, uint8_t* block) {
  float largest = 0.0f;
  for (int g = 0; g < 16; ++g) largest = std::max(largest, std::fabs(LargestMagnitude(in + g * 16, 16)));
  const float scale = StoreHalf(block + 108, largest / -4.0f / 31.0f);
  std::fill_n(block, 108, uint8_t{0});
  uint8_t* scales = block + 96;
  for (int g = 0; g < 16; ++g) {
    const int group_scale = Nearest(LargestMagnitude(in + g * 16, 16) / -4.0f * Inverse(scale), -31, 31);
    const int code = group_scale + 32;
    scales[g % 8] = static_cast<uint8_t>(scales[g % 8] | (code & 0xF) << (g / 8 * 4));
    scales[8 + g % 4] = static_cast<uint8_t>(scales[8 + g % 4] | (code >> 4) << (g / 4 * 2));
    const float inverse = Inverse(scale * static_cast<float>(group_scale));
    for (int i = g * 16; i < g * 16 + 16; ++i) {
      const int q = Nearest(in[i] * inverse, -4, 3) + 4;
      uint8_t& low = block[32 + i / 128 * 32 + i % 32];
      low = static_cast<uint8_t>(low | ((q & 3) << (i / 32 % 4 * 2)));
      block[i % 32] = static_cast<uint8_t>(block[i % 32] | ((q >> 2) << (i / 32)));
    }
  }
}

// The code whose value is nearest.
int NearestCode(const int8_t* values, float wanted) {
  int best = 0;
  for (int code = 1; code < 16; ++code) {
    if (std::fabs(static_cast<float>(values[code]) - wanted) < std::fabs(static_cast<float>(values[best]) - wanted)) {
      best = code;
    }
  }
  return best;
}
void StoreCodes(const float* in, const int8_t* values, float scale, uint8_t* nibbles) {
  int q[32];
  for (int j = 0; j < 32; ++j) q[j] = NearestCode(values, in[j] * Inverse(scale));
  StoreNibbles(q, nibbles);
}

void BlockIQ4_NL(const float* in, uint8_t* block) {
  const float scale = StoreHalf(block, LargestMagnitude(in, 32) / static_cast<float>(kValuesIQ4_NL[0]));
  StoreCodes(in, kValuesIQ4_NL, scale, block + 2);
}

// The smallest power of two with which 12 half-units reach the largest magnitude.
void BlockMXFP4(const float* in, uint8_t* block) {
  const float largest = std::fabs(LargestMagnitude(in, 32));
  *block = 0;
  while (*block < 255 && 12.0f * HalfE8m0ToFloat(*block) < largest) ++*block;
  StoreCodes(in, kValuesMXFP4, HalfE8m0ToFloat(*block), block + 1);
}

// The 8-bit float nearest to a value, by search: ToFloat rises with the lower seven bits up to code `most`.
template <float (*ToFloat)(uint8_t), uint8_t most>
void Float8(const float* in, uint8_t* out) {
  const float magnitude = std::fabs(*in);
  uint8_t code = 0;
  while (code < most && ToFloat(code) < magnitude) ++code;
  if (code > 0 && magnitude - ToFloat(static_cast<uint8_t>(code - 1)) < ToFloat(code) - magnitude) --code;
  *out = static_cast<uint8_t>(code | (std::signbit(*in) ? 0x80 : 0));
}

template <typename Block>
void Blocks(DType type, const float* row, int64_t columns, uint8_t* out, Block&& block) {
  const DTypeInfo& info = Info(type);
  for (int64_t i = 0; i < columns / info.block_elements; ++i) {
    block(row + i * info.block_elements, out + i * info.block_bytes);
  }
}

}  // namespace

void QuantizeRow(DType type, const float* row, int64_t columns, std::byte* out) {
  CHECK(Info(type).computable);
  CHECK_EQ(columns % Info(type).block_elements, 0);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  switch (type) {
    case DType::kF32:
      if (columns > 0) std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
      return;
    case DType::kF16:
      return Blocks(type, row, columns, bytes, [](const float* v, uint8_t* b) { StoreU16(b, FloatToHalf(*v)); });
    case DType::kBF16:
      return Blocks(type, row, columns, bytes, [](const float* v, uint8_t* b) { StoreU16(b, FloatToBf16(*v)); });
    case DType::kQ4_0:
      return Blocks(type, row, columns, bytes, BlockSymmetric<4>);
    case DType::kQ4_1:
      return Blocks(type, row, columns, bytes, BlockFromMin<4>);
    case DType::kQ5_0:
      return Blocks(type, row, columns, bytes, BlockSymmetric<5>);
    case DType::kQ5_1:
      return Blocks(type, row, columns, bytes, BlockFromMin<5>);
    case DType::kQ8_0:
      return Blocks(type, row, columns, bytes, BlockQ8_0);
    case DType::kF8E4M3:
      return Blocks(type, row, columns, bytes, Float8<E4m3ToFloat, 0x7E>);
    case DType::kF8E5M2:
      return Blocks(type, row, columns, bytes, Float8<E5m2ToFloat, 0x7B>);
    case DType::kQ2_K:
      return Blocks(type, row, columns, bytes, BlockQ2_K);
    case DType::kQ3_K:
      return Blocks(type, row, columns, bytes, BlockQ3_K);
    case DType::kIQ4_NL:
      return Blocks(type, row, columns, bytes, BlockIQ4_NL);
    case DType::kMXFP4:
      return Blocks(type, row, columns, bytes, BlockMXFP4);
    case DType::kQ4_K:
      return Blocks(type, row, columns, bytes, BlockScaleMin<4>);
    case DType::kQ5_K:
      return Blocks(type, row, columns, bytes, BlockScaleMin<5>);
    case DType::kQ6_K:
      return Blocks(type, row, columns, bytes, BlockQ6_K);
    default:
      CHECK(false);
  }
}

}  // namespace headrace
