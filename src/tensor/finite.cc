#include "tensor/finite.h"

#include <cstring>

namespace headrace {
namespace {

// Whether any of `count` numbers of type T has all bits of its exponent set. No early end: the compiler vectorises it.
template <typename T, T kExponent>
bool AnyFull(const std::byte* row, int64_t count) {
  T found = 0;
  for (int64_t i = 0; i < count; ++i) {
    T bits;
    std::memcpy(&bits, row + i * int64_t{sizeof(T)}, sizeof bits);
    found = static_cast<T>(found | static_cast<T>((bits & kExponent) == kExponent ? 1 : 0));
  }
  return found != 0;
}

bool HalfIsFinite(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return (bits & 0x7C00) != 0x7C00;
}

// Blocks whose halves lie at `first` and, where it is not negative, at `second`.
bool HalvesAreFinite(const std::byte* row, int64_t blocks, int block_bytes, int first, int second = -1) {
  bool finite = true;
  for (int64_t b = 0; b < blocks; ++b, row += block_bytes) {
    finite &= HalfIsFinite(row + first);
    if (second >= 0) finite &= HalfIsFinite(row + second);
  }
  return finite;
}

// E8M0: 255 is NaN, and from 253 on 6 times the scale, the largest value of a code, is more than a float holds.
bool ScalesMXFP4AreFinite(const std::byte* row, int64_t blocks, int block_bytes) {
  bool finite = true;
  for (int64_t b = 0; b < blocks; ++b, row += block_bytes) finite &= std::to_integer<int>(*row) < 253;
  return finite;
}

// E4M3 has no infinity; its NaN has all bits but the sign set.
bool AllFiniteE4M3(const std::byte* row, int64_t columns) { return !AnyFull<uint8_t, 0x7F>(row, columns); }

}  // namespace

bool AllFinite(DType type, const std::byte* row, int64_t columns) {
  const DTypeInfo& info = Info(type);
  const int64_t blocks = columns / info.block_elements;
  switch (type) {
    case DType::kF32:
      return !AnyFull<uint32_t, 0x7F800000u>(row, columns);
    case DType::kBF16:
      return !AnyFull<uint16_t, 0x7F80>(row, columns);
    case DType::kF16:
      return !AnyFull<uint16_t, 0x7C00>(row, columns);
    case DType::kF8E4M3:
      return AllFiniteE4M3(row, columns);
    case DType::kF8E5M2:
      return !AnyFull<uint8_t, 0x7C>(row, columns);
    case DType::kMXFP4:
      return ScalesMXFP4AreFinite(row, blocks, info.block_bytes);
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return HalvesAreFinite(row, blocks, info.block_bytes, 0, 2);
    case DType::kQ2_K:
      return HalvesAreFinite(row, blocks, info.block_bytes, 80, 82);
    case DType::kQ3_K:
      return HalvesAreFinite(row, blocks, info.block_bytes, 108);
    case DType::kQ6_K:
      return HalvesAreFinite(row, blocks, info.block_bytes, 208);
    default:  // Q4_0, Q5_0, Q8_0, IQ4_NL: the scale comes first
      return HalvesAreFinite(row, blocks, info.block_bytes, 0);
  }
}

}  // namespace headrace
