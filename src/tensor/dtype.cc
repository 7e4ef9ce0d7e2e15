#include "tensor/dtype.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"

namespace headrace {
namespace {

// In the order of the enum. Bytes are written as the sum of the block's fields.
constexpr std::array<DTypeInfo, kDTypeCount> kInfos = {{
    {"F32", 1, 4, true},
    {"F16", 1, 2, true},
    {"BF16", 1, 2, true},
    {"F64", 1, 8, false},
    {"I8", 1, 1, false},
    {"I16", 1, 2, false},
    {"I32", 1, 4, false},
    {"I64", 1, 8, false},
    {"U8", 1, 1, false},
    {"U16", 1, 2, false},
    {"U32", 1, 4, false},
    {"U64", 1, 8, false},
    {"BOOL", 1, 1, false},
    {"F8_E4M3", 1, 1, true},
    {"F8_E5M2", 1, 1, true},
    {"Q4_0", 32, 2 + 16, true},
    {"Q4_1", 32, 2 + 2 + 16, true},
    {"Q5_0", 32, 2 + 4 + 16, true},
    {"Q5_1", 32, 2 + 2 + 4 + 16, true},
    {"Q8_0", 32, 2 + 32, true},
    {"Q8_1", 32, 2 + 2 + 32, false},
    {"Q2_K", 256, 16 + 64 + 2 + 2, true},
    {"Q3_K", 256, 32 + 64 + 12 + 2, true},
    {"Q4_K", 256, 2 + 2 + 12 + 128, true},
    {"Q5_K", 256, 2 + 2 + 12 + 32 + 128, true},
    {"Q6_K", 256, 128 + 64 + 16 + 2, true},
    {"Q8_K", 256, 4 + 256 + 32, false},
    {"IQ1_S", 256, 2 + 32 + 16, false},
    {"IQ1_M", 256, 32 + 16 + 8, false},
    {"IQ2_XXS", 256, 2 + 64, false},
    {"IQ2_XS", 256, 2 + 64 + 8, false},
    {"IQ2_S", 256, 2 + 64 + 16, false},
    {"IQ3_XXS", 256, 2 + 64 + 32, false},
    {"IQ3_S", 256, 2 + 64 + 32 + 8 + 4, false},
    {"IQ4_NL", 32, 2 + 16, true},
    {"IQ4_XS", 256, 2 + 2 + 128 + 4, false},
    {"TQ1_0", 256, 2 + 4 * 13, false},
    {"TQ2_0", 256, 2 + 64, false},
    {"MXFP4", 32, 1 + 16, true},
    {"NVFP4", 64, 4 + 32, false},
    {"Q1_0", 128, 2 + 16, false},
}};

}  // namespace

const DTypeInfo& Info(DType type) {
  const size_t index = static_cast<size_t>(type);
  CHECK_LT(index, kInfos.size());
  return kInfos[index];
}

Result<uint64_t> RowBytes(DType type, int64_t columns) {
  const DTypeInfo& info = Info(type);
  if (columns < 0 || columns % info.block_elements != 0) {
    return Fail(ErrorCode::kCorruptData, fmt::format("a row of {} elements is not a whole number of {} blocks of {}",
                                                     columns, info.name, info.block_elements));
  }
  const int64_t blocks = columns / info.block_elements;
  if (blocks > INT64_MAX / info.block_bytes) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("a row of {} {} elements has more than 2^63 bytes", columns, info.name));
  }
  return static_cast<uint64_t>(blocks) * static_cast<uint64_t>(info.block_bytes);
}

std::string ComputableTypeNames() {
  std::string names;
  for (const DTypeInfo& info : kInfos) {
    if (!info.computable) continue;
    if (!names.empty()) names += ", ";
    names += info.name;
  }
  return names;
}

}  // namespace headrace
