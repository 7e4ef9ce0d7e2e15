#include "weights/gguf_format.h"

#include <algorithm>

namespace headrace {
namespace {

struct TypeNumber {
  uint32_t number;
  DType type;
};
constexpr TypeNumber kTypeNumbers[] = {
    {0, DType::kF32},     {1, DType::kF16},      {2, DType::kQ4_0},   {3, DType::kQ4_1},    {6, DType::kQ5_0},
    {7, DType::kQ5_1},    {8, DType::kQ8_0},     {9, DType::kQ8_1},   {10, DType::kQ2_K},   {11, DType::kQ3_K},
    {12, DType::kQ4_K},   {13, DType::kQ5_K},    {14, DType::kQ6_K},  {15, DType::kQ8_K},   {16, DType::kIQ2_XXS},
    {17, DType::kIQ2_XS}, {18, DType::kIQ3_XXS}, {19, DType::kIQ1_S}, {20, DType::kIQ4_NL}, {21, DType::kIQ3_S},
    {22, DType::kIQ2_S},  {23, DType::kIQ4_XS},  {24, DType::kI8},    {25, DType::kI16},    {26, DType::kI32},
    {27, DType::kI64},    {28, DType::kF64},     {29, DType::kIQ1_M}, {30, DType::kBF16},   {34, DType::kTQ1_0},
    {35, DType::kTQ2_0},  {39, DType::kMXFP4},   {40, DType::kNVFP4}, {41, DType::kQ1_0},
};

}  // namespace

std::optional<DType> DTypeFromGguf(uint32_t number) {
  const auto* found = std::ranges::find(kTypeNumbers, number, &TypeNumber::number);
  if (found == std::end(kTypeNumbers)) return std::nullopt;
  return found->type;
}

std::optional<uint32_t> GgufFromDType(DType type) {
  const auto* found = std::ranges::find(kTypeNumbers, type, &TypeNumber::type);
  if (found == std::end(kTypeNumbers)) return std::nullopt;
  return found->number;
}

}  // namespace headrace
