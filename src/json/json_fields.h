// Typed, ranged reading of one JSON object's fields. Absent and null are the same: nullopt. A wrong type or range is
// kInvalidArgument with the field's path. Remembers which fields were asked for, so that the rest can be listed.
// Borrows the object and its keys' literals. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace headrace {

class JsonFields {
 public:
  // `path` is the object's own place, "" at the top. Fails unless `value` is an object of at most fields_max fields.
  static Result<JsonFields> Of(const Json& value, std::string path, size_t fields_max = 1024);

  // Accepts integers and fractions, never booleans or strings; min and max are allowed values.
  Result<std::optional<double>> Number(std::string_view key, double min, double max);
  // Accepts 3 and 3.0, never 3.5.
  Result<std::optional<int64_t>> Integer(std::string_view key, int64_t min, int64_t max);
  Result<std::optional<bool>> Bool(std::string_view key);
  Result<std::optional<std::string>> String(std::string_view key, size_t bytes_max);
  // One of `allowed`.
  Result<std::optional<std::string>> OneOf(std::string_view key, std::initializer_list<std::string_view> allowed);
  Result<const Json*> Array(std::string_view key, size_t items_max);  // nullptr: absent
  Result<const Json*> Object(std::string_view key);                   // nullptr: absent

  // The value as it stands, nullptr when absent or null. Counts as read.
  const Json* Find(std::string_view key);
  // The field's path, for errors of the caller's own.
  std::string Path(std::string_view key) const;
  // Names of fields nobody asked for, at most names_max of them, each cut to kJsonPathKeyBytesMax bytes.
  std::vector<std::string> Unread(size_t names_max) const;

 private:
  JsonFields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}

  const Json* object_;
  std::string path_;
  std::vector<std::string_view> read_;
};

// One value as an integer in [min, max]; `path` names it in the error.
Result<int64_t> JsonInteger(const Json& value, int64_t min, int64_t max, std::string path);
// kInvalidArgument: "'path' must be <wanted>, but it is a <type>."
Error JsonTypeError(const Json& value, std::string path, std::string_view wanted);

}  // namespace headrace
