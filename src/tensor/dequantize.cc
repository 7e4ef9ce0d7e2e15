#include "tensor/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace headrace {
namespace {

uint16_t LoadU16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
uint32_t LoadU32(const uint8_t* p) { return LoadU16(p) | (static_cast<uint32_t>(LoadU16(p + 2)) << 16); }
float LoadHalf(const uint8_t* p) { return HalfToFloat(LoadU16(p)); }

// {half scale, 16 bytes}: element j in the low, 16 + j in the high nibble of byte j.
void BlockQ4_0(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const uint8_t* nibbles = block + 2;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>((nibbles[j] & 0xF) - 8);
    out[j + 16] = scale * static_cast<float>((nibbles[j] >> 4) - 8);
  }
}

// {half scale, half min, 16 bytes}
void BlockQ4_1(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const float min = LoadHalf(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(nibbles[j] & 0xF) + min;
    out[j + 16] = scale * static_cast<float>(nibbles[j] >> 4) + min;
  }
}

// Bit j of `high` is the fifth bit of element j.
int FifthBit(uint32_t high, int j) { return static_cast<int>((high >> j) & 1u) << 4; }

// {half scale, 4 bytes of fifth bits, 16 bytes}
void BlockQ5_0(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const uint32_t high = LoadU32(block + 2);
  const uint8_t* nibbles = block + 6;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(((nibbles[j] & 0xF) | FifthBit(high, j)) - 16);
    out[j + 16] = scale * static_cast<float>(((nibbles[j] >> 4) | FifthBit(high, j + 16)) - 16);
  }
}

// {half scale, half min, 4 bytes of fifth bits, 16 bytes}
void BlockQ5_1(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const float min = LoadHalf(block + 2);
  const uint32_t high = LoadU32(block + 4);
  const uint8_t* nibbles = block + 8;
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>((nibbles[j] & 0xF) | FifthBit(high, j)) + min;
    out[j + 16] = scale * static_cast<float>((nibbles[j] >> 4) | FifthBit(high, j + 16)) + min;
  }
}

// {half scale, 32 signed bytes}
void BlockQ8_0(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  for (int j = 0; j < 32; ++j) out[j] = scale * static_cast<float>(static_cast<int8_t>(block[2 + j]));
}

// {half scale, half min scale, 12 bytes of scales and mins, 128 bytes}: each 32 bytes hold group 2g in the low and
// group 2g + 1 in the high nibbles.
void BlockQ4_K(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const float min_scale = LoadHalf(block + 2);
  const uint8_t* packed = block + 4;
  const uint8_t* nibbles = block + 16;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = UnpackScaleMin(packed, group);
    const float d = scale * static_cast<float>(sm.scale);
    const float m = min_scale * static_cast<float>(sm.min);
    const uint8_t* bytes = nibbles + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int j = 0; j < 32; ++j) out[group * 32 + j] = d * static_cast<float>((bytes[j] >> shift) & 0xF) - m;
  }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit `group` of byte j.
void BlockQ5_K(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block);
  const float min_scale = LoadHalf(block + 2);
  const uint8_t* packed = block + 4;
  const uint8_t* high = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int group = 0; group < 8; ++group) {
    const ScaleMin sm = UnpackScaleMin(packed, group);
    const float d = scale * static_cast<float>(sm.scale);
    const float m = min_scale * static_cast<float>(sm.min);
    const uint8_t* bytes = nibbles + group / 2 * 32;
    const int shift = group % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      const int q = ((bytes[j] >> shift) & 0xF) | (((high[j] >> group) & 1) << 4);
      out[group * 32 + j] = d * static_cast<float>(q) - m;
    }
  }
}

// {128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, half scale}. Each half of 128 elements is
// four runs of 32: run r takes nibble r / 2 of byte (r % 2) * 32 + j and bit pair r of high byte j; a scale covers 16.
void BlockQ6_K(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + half * 64;
    const uint8_t* high = block + 128 + half * 32;
    const uint8_t* scales = block + 192 + half * 8;
    for (int run = 0; run < 4; ++run) {
      for (int j = 0; j < 32; ++j) {
        const int nibble = (low[run % 2 * 32 + j] >> (run / 2 * 4)) & 0xF;
        const int pair = (high[j] >> (run * 2)) & 3;
        const float d = scale * static_cast<float>(static_cast<int8_t>(scales[run * 2 + j / 16]));
        out[half * 128 + run * 32 + j] = d * static_cast<float>((nibble | (pair << 4)) - 32);
      }
    }
  }
}

// {16 bytes of scale (low nibble) and minimum (high nibble) for 16 elements each, 64 bytes, half scale, half min
// scale}: group g of 32 takes bit pair g % 4 of the 32 bytes at g / 4 * 32.
void BlockQ2_K(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block + 80);
  const float min_scale = LoadHalf(block + 82);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const uint8_t pair = block[i / 16];
    const int q = (block[16 + group / 4 * 32 + i % 32] >> (group % 4 * 2)) & 3;
    out[i] = scale * static_cast<float>(pair & 0xF) * static_cast<float>(q) - min_scale * static_cast<float>(pair >> 4);
  }
}

// {32 bytes of third bits, 64 bytes of bit pairs as in Q2_K, 12 bytes of scales, half scale}: bit g of byte j is the
// third bit of element j of group g; codes are 4 too large.
void BlockQ3_K(const uint8_t* block, float* out) {
  const float scale = LoadHalf(block + 108);
  for (int i = 0; i < 256; ++i) {
    const int group = i / 32;
    const int pair = (block[32 + group / 4 * 32 + i % 32] >> (group % 4 * 2)) & 3;
    const int q = (pair | ((block[i % 32] >> group) & 1) << 2) - 4;
    out[i] = scale * static_cast<float>(UnpackScaleQ3_K(block + 96, i / 16)) * static_cast<float>(q);
  }
}

// 16 bytes of codes, as nibbles in Q4_0.
void Codes(const uint8_t* nibbles, const int8_t* values, float scale, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(values[nibbles[j] & 0xF]);
    out[j + 16] = scale * static_cast<float>(values[nibbles[j] >> 4]);
  }
}

// {half scale, 16 bytes of codes}
void BlockIQ4_NL(const uint8_t* block, float* out) { Codes(block + 2, kValuesIQ4_NL, LoadHalf(block), out); }

// {E8M0 scale, 16 bytes of codes}
void BlockMXFP4(const uint8_t* block, float* out) { Codes(block + 1, kValuesMXFP4, HalfE8m0ToFloat(*block), out); }

template <typename Block>
void Blocks(DType type, const uint8_t* row, int64_t columns, float* out, Block&& block) {
  const DTypeInfo& info = Info(type);
  for (int64_t i = 0; i < columns / info.block_elements; ++i) {
    block(row + i * info.block_bytes, out + i * info.block_elements);
  }
}

}  // namespace

void DequantizeRow(DType type, const std::byte* row, int64_t columns, float* out) {
  CHECK(Info(type).computable);
  CHECK_EQ(columns % Info(type).block_elements, 0);
  const auto* bytes = reinterpret_cast<const uint8_t*>(row);
  switch (type) {
    case DType::kF32:
      if (columns > 0) std::memcpy(out, row, static_cast<size_t>(columns) * sizeof(float));
      return;
    case DType::kF16:
      return Blocks(type, bytes, columns, out, [](const uint8_t* b, float* o) { *o = LoadHalf(b); });
    case DType::kBF16:
      return Blocks(type, bytes, columns, out, [](const uint8_t* b, float* o) { *o = Bf16ToFloat(LoadU16(b)); });
    case DType::kQ4_0:
      return Blocks(type, bytes, columns, out, BlockQ4_0);
    case DType::kQ4_1:
      return Blocks(type, bytes, columns, out, BlockQ4_1);
    case DType::kQ5_0:
      return Blocks(type, bytes, columns, out, BlockQ5_0);
    case DType::kQ5_1:
      return Blocks(type, bytes, columns, out, BlockQ5_1);
    case DType::kQ8_0:
      return Blocks(type, bytes, columns, out, BlockQ8_0);
    case DType::kF8E4M3:
      return Blocks(type, bytes, columns, out, [](const uint8_t* b, float* o) { *o = E4m3ToFloat(*b); });
    case DType::kF8E5M2:
      return Blocks(type, bytes, columns, out, [](const uint8_t* b, float* o) { *o = E5m2ToFloat(*b); });
    case DType::kQ2_K:
      return Blocks(type, bytes, columns, out, BlockQ2_K);
    case DType::kQ3_K:
      return Blocks(type, bytes, columns, out, BlockQ3_K);
    case DType::kIQ4_NL:
      return Blocks(type, bytes, columns, out, BlockIQ4_NL);
    case DType::kMXFP4:
      return Blocks(type, bytes, columns, out, BlockMXFP4);
    case DType::kQ4_K:
      return Blocks(type, bytes, columns, out, BlockQ4_K);
    case DType::kQ5_K:
      return Blocks(type, bytes, columns, out, BlockQ5_K);
    case DType::kQ6_K:
      return Blocks(type, bytes, columns, out, BlockQ6_K);
    default:
      CHECK(false);
  }
}

}  // namespace headrace
