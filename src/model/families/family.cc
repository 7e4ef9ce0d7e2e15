#include "model/families/family.h"

#include <fmt/format.h>

namespace headrace {
namespace {

Result<const Family*> Find(std::string_view Family::* field, const char* what, const char* key,
                           std::string_view value) {
  std::string names;
  for (const Family* family : Families()) {
    const std::string_view name = family->*field;
    if (name.empty()) continue;
    if (name == value) return family;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("{} '{}' is not supported; supported are {}", what, value, names),
              key);
}

}  // namespace

std::span<const Family* const> Families() {
  static constexpr const Family* kFamilies[] = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kGemma3, &kPhi3, &kGranite};
  return kFamilies;
}

Result<const Family*> FamilyOfArchitecture(std::string_view architecture) {
  return Find(&Family::architecture, "architecture", "general.architecture", architecture);
}

Result<const Family*> FamilyOfModelType(std::string_view model_type) {
  return Find(&Family::model_type, "model_type", "model_type", model_type);
}

}  // namespace headrace
