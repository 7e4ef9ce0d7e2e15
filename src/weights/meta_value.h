// One value of a model file's metadata. Integers keep their sign class, arrays are typed vectors; the type as stored is
// kept beside the value, so that a writer can store it again unchanged. Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headrace {

// The numbers are GGUF's.
enum class MetaType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

class MetaValue {
 public:
  // Arrays: booleans and all integers are int64, both float widths are float.
  using Data = std::variant<uint64_t, int64_t, double, bool, std::string, std::vector<std::string>, std::vector<float>,
                            std::vector<int64_t>>;

  static MetaValue U32(uint32_t v) { return MetaValue(MetaType::kU32, uint64_t{v}); }
  static MetaValue U64(uint64_t v) { return MetaValue(MetaType::kU64, v); }
  static MetaValue I32(int32_t v) { return MetaValue(MetaType::kI32, int64_t{v}); }
  static MetaValue F32(float v) { return MetaValue(MetaType::kF32, double{v}); }
  static MetaValue Bool(bool v) { return MetaValue(MetaType::kBool, v); }
  static MetaValue String(std::string v) { return MetaValue(MetaType::kString, std::move(v)); }
  static MetaValue Strings(std::vector<std::string> v) { return Array(MetaType::kString, std::move(v)); }
  static MetaValue Floats(std::vector<float> v) { return Array(MetaType::kF32, std::move(v)); }
  static MetaValue I32s(std::vector<int64_t> v) { return Array(MetaType::kI32, std::move(v)); }
  // REQUIRES: `data` holds the alternative that belongs to `type`.
  static MetaValue Scalar(MetaType type, Data data) { return MetaValue(type, std::move(data)); }
  static MetaValue Array(MetaType element_type, Data data) {
    MetaValue value(MetaType::kArray, std::move(data));
    value.element_type_ = element_type;
    return value;
  }

  MetaType type() const { return type_; }
  MetaType element_type() const { return element_type_; }  // of an array, else type()
  const Data& data() const { return data_; }

  // Nothing when the value is of another kind. Int: any integer that fits; Float: any number.
  std::optional<int64_t> AsInt() const;
  std::optional<double> AsFloat() const;
  std::optional<bool> AsBool() const;
  const std::string* AsString() const { return std::get_if<std::string>(&data_); }
  const std::vector<std::string>* AsStrings() const { return std::get_if<std::vector<std::string>>(&data_); }
  const std::vector<float>* AsFloats() const { return std::get_if<std::vector<float>>(&data_); }
  const std::vector<int64_t>* AsInts() const { return std::get_if<std::vector<int64_t>>(&data_); }

 private:
  MetaValue(MetaType type, Data data) : type_(type), element_type_(type), data_(std::move(data)) {}

  MetaType type_;
  MetaType element_type_;
  Data data_;
};

struct MetaEntry {
  std::string key;
  MetaValue value;
};

}  // namespace headrace
