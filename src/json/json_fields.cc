#include "json/json_fields.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include "json/json_path.h"

namespace headrace {
namespace {

std::string_view TypeName(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::object:
      return "an object";
    default:
      return value.is_number_float() ? "a fraction" : "an integer";
  }
}

Error RangeError(std::string path, std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(path), 0};
}

// The integer that the value is, nullopt when it is a fraction or leaves int64.
std::optional<int64_t> ExactInteger(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const double number = value.get<double>();
  // 2^63 is exact as a double and the first value outside.
  if (number != std::floor(number) || number < -0x1p63 || number >= 0x1p63) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

Error JsonTypeError(const Json& value, std::string path, std::string_view wanted) {
  std::string message = path.empty() ? fmt::format("The body must be {}, but it is {}.", wanted, TypeName(value))
                                     : fmt::format("'{}' must be {}, but it is {}.", path, wanted, TypeName(value));
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(path), 0};
}

Result<int64_t> JsonInteger(const Json& value, int64_t min, int64_t max, std::string path) {
  if (!value.is_number()) return Fail(JsonTypeError(value, std::move(path), "an integer"));
  const std::optional<int64_t> number = ExactInteger(value);
  if (!number || *number < min || *number > max) {
    std::string message =
        fmt::format("'{}' must be an integer from {} to {}, but it is {}.", path, min, max, DumpJson(value));
    return Fail(RangeError(std::move(path), std::move(message)));
  }
  return *number;
}

Result<JsonFields> JsonFields::Of(const Json& value, std::string path, size_t fields_max) {
  if (!value.is_object()) return Fail(JsonTypeError(value, std::move(path), "a JSON object"));
  if (value.size() > fields_max) {
    std::string message =
        fmt::format("'{}' has {} fields; the limit is {}.", path.empty() ? "body" : path, value.size(), fields_max);
    return Fail(RangeError(std::move(path), std::move(message)));
  }
  return JsonFields(value, std::move(path));
}

const Json* JsonFields::Find(std::string_view key) {
  read_.push_back(key);
  const auto it = object_->find(key);
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

std::string JsonFields::Path(std::string_view key) const { return JoinJsonPath(path_, key); }

Result<std::optional<double>> JsonFields::Number(std::string_view key, double min, double max) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) return Fail(JsonTypeError(*value, Path(key), "a number"));
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    return Fail(RangeError(
        Path(key), fmt::format("'{}' must be a number from {} to {}, but it is {}.", Path(key), min, max, number)));
  }
  return number;
}

Result<std::optional<int64_t>> JsonFields::Integer(std::string_view key, int64_t min, int64_t max) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  HR_ASSIGN_OR_RETURN(const int64_t number, JsonInteger(*value, min, max, Path(key)));
  return number;
}

Result<std::optional<bool>> JsonFields::Bool(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) return Fail(JsonTypeError(*value, Path(key), "true or false"));
  return value->get<bool>();
}

Result<std::optional<std::string>> JsonFields::String(std::string_view key, size_t bytes_max) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) return Fail(JsonTypeError(*value, Path(key), "a string"));
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    return Fail(
        RangeError(Path(key), fmt::format("'{}' has {} bytes; the limit is {}.", Path(key), text.size(), bytes_max)));
  }
  return text;
}

Result<std::optional<std::string>> JsonFields::OneOf(std::string_view key,
                                                     std::initializer_list<std::string_view> allowed) {
  const Json* value = Find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string() &&
      std::ranges::find(allowed, std::string_view(value->get_ref<const std::string&>())) != allowed.end()) {
    return value->get<std::string>();
  }
  return Fail(RangeError(Path(key), fmt::format("'{}' must be one of: {}.", Path(key), fmt::join(allowed, ", "))));
}

Result<const Json*> JsonFields::Array(std::string_view key, size_t items_max) {
  const Json* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) return Fail(JsonTypeError(*value, Path(key), "an array"));
  if (value->size() > items_max) {
    return Fail(
        RangeError(Path(key), fmt::format("'{}' has {} items; the limit is {}.", Path(key), value->size(), items_max)));
  }
  return value;
}

Result<const Json*> JsonFields::Object(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) return Fail(JsonTypeError(*value, Path(key), "an object"));
  return value;
}

std::vector<std::string> JsonFields::Unread(size_t names_max) const {
  std::vector<std::string> names;
  for (const auto& item : object_->items()) {
    if (names.size() == names_max) break;
    if (std::ranges::find(read_, std::string_view(item.key())) == read_.end())
      names.push_back(JoinJsonPath("", item.key()));
  }
  return names;
}

}  // namespace headrace
