#include "weights/meta_value.h"

namespace headrace {

std::optional<int64_t> MetaValue::AsInt() const {
  if (const auto* value = std::get_if<int64_t>(&data_)) return *value;
  const auto* value = std::get_if<uint64_t>(&data_);
  if (value == nullptr || *value > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<double> MetaValue::AsFloat() const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  if (const auto* value = std::get_if<uint64_t>(&data_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<int64_t>(&data_)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> MetaValue::AsBool() const {
  if (const auto* value = std::get_if<bool>(&data_)) return *value;
  return std::nullopt;
}

}  // namespace headrace
