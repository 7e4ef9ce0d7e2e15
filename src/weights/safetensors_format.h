// The type names of the safetensors format that reader and writer share: DTypeInfo's names, for the types it has.
#pragma once

#include <optional>
#include <string_view>

#include "tensor/dtype.h"

namespace headrace {

constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

constexpr bool IsSafetensorsType(DType type) { return type <= DType::kF8E5M2; }
static_assert(static_cast<int>(DType::kF8E5M2) + 1 == static_cast<int>(DType::kQ4_0), "plain types come first");

inline std::optional<DType> DTypeFromSafetensors(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    if (Info(static_cast<DType>(i)).name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace headrace
