#include "weights/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/log.h"
#include "weights/byte_cursor.h"
#include "weights/gguf_format.h"
#include "weights/limits.h"

namespace headrace {
namespace {

// The parts of a file in the order they lie: fixed header, metadata, tensor table, padding, tensor data.
class GgufParser {
 public:
  GgufParser(const ByteSource& source, uint64_t meta_bytes_max, uint64_t tensors_max)
      : cursor_(source), meta_bytes_left_(meta_bytes_max), tensors_max_(tensors_max) {}

  Result<ParsedHeader> Parse() {
    HR_RETURN_IF_ERROR(ReadFixedHeader());
    HR_RETURN_IF_ERROR(ReadMetadata());
    HR_RETURN_IF_ERROR(ReadTensorTable());
    HR_RETURN_IF_ERROR(PlaceTensors());
    return std::move(header_);
  }

 private:
  Status ReadFixedHeader();
  Status ReadMetadata();
  Status ReadEntry();
  Result<MetaValue> ReadValue(MetaType type);
  Result<MetaValue> ReadArray();
  Result<MetaValue::Data> ReadScalar(MetaType type);
  template <typename T>
  Result<MetaValue::Data> ReadFloats(uint64_t count);
  template <typename T>
  Result<MetaValue::Data> ReadInts(uint64_t count);
  Result<MetaValue::Data> ReadStrings(uint64_t count);
  Result<std::string> ReadString(uint64_t bytes_max, std::string_view what);
  Status Charge(uint64_t bytes);
  Status CheckKeysDistinct();
  Status ReadTensorTable();
  Result<TensorInfo> ReadTensor();
  Status SetShape(TensorInfo& tensor);
  Status PlaceTensors();

  ByteCursor cursor_;
  uint64_t meta_bytes_left_;
  const uint64_t tensors_max_;
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t alignment_ = kGgufAlignmentDefault;
  ParsedHeader header_;
};

Status GgufParser::ReadFixedHeader() {
  char magic[4];
  HR_RETURN_IF_ERROR(cursor_.Read(std::as_writable_bytes(std::span(magic))));
  if (std::string_view(magic, 4) != kGgufMagic) return cursor_.Corrupt(ErrorCode::kCorruptData, "no GGUF magic");
  uint32_t version = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(version));
  if (version != 0 && (version & 0xFFFF) == 0) {
    return cursor_.Corrupt(ErrorCode::kUnsupported, "a big-endian GGUF; convert it to little-endian");
  }
  if (version != 2 && version != 3) {
    return cursor_.Corrupt(ErrorCode::kUnsupported,
                           fmt::format("GGUF version {}; versions 2 and 3 are read: convert the model again", version));
  }
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(tensor_count_));
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(key_count_));
  if (tensor_count_ > tensors_max_) {
    return cursor_.Corrupt(ErrorCode::kTooLarge,
                           fmt::format("{} tensors; at most {} are read in one model", tensor_count_, kTensorsMax));
  }
  if (key_count_ > kMetaKeysMax) {
    return cursor_.Corrupt(ErrorCode::kTooLarge,
                           fmt::format("{} metadata keys; at most {} are read", key_count_, kMetaKeysMax));
  }
  // The least entry: a name of one byte, a dimension count and a dimension, type and offset; a key, a type and a byte.
  constexpr uint64_t kTensorEntryBytesMin = 9 + 4 + 8 + 4 + 8;
  constexpr uint64_t kMetaEntryBytesMin = 9 + 4 + 1;
  const uint64_t needed = tensor_count_ * kTensorEntryBytesMin + key_count_ * kMetaEntryBytesMin;
  if (needed > cursor_.remaining()) {
    return cursor_.Corrupt(
        ErrorCode::kCorruptData,
        fmt::format("{} tensors and {} keys need at least {} bytes, but the file has only {}; is the "
                    "download complete?",
                    tensor_count_, key_count_, cursor_.offset() + needed, cursor_.source().size()));
  }
  return {};
}

Status GgufParser::ReadMetadata() {
  header_.metadata.reserve(key_count_);
  for (uint64_t i = 0; i < key_count_; ++i) {
    cursor_.SetPlace("metadata key", i + 1, key_count_);
    HR_RETURN_IF_ERROR(ReadEntry());
  }
  return CheckKeysDistinct();
}

Status GgufParser::ReadEntry() {
  HR_RETURN_IF_ERROR(Charge(sizeof(MetaEntry)));
  HR_ASSIGN_OR_RETURN(std::string key, ReadString(kMetaKeyBytesMax, "the key"));
  if (key.empty()) return cursor_.Corrupt(ErrorCode::kCorruptData, "the key is empty");
  uint32_t type = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(type));
  auto value = ReadValue(static_cast<MetaType>(type));
  if (!value) {
    value.error().message += fmt::format(" (key {})", EscapeForLog(key, 100));
    return Fail(std::move(value).error());
  }
  if (key == kGgufAlignmentKey) {
    const int64_t alignment = value->AsInt().value_or(0);
    if (alignment <= 0 || !std::has_single_bit(static_cast<uint64_t>(alignment)) ||
        static_cast<uint64_t>(alignment) > kAlignmentMax) {
      return cursor_.Corrupt(ErrorCode::kCorruptData,
                             fmt::format("general.alignment must be a power of two up to {}", kAlignmentMax));
    }
    alignment_ = static_cast<uint64_t>(alignment);
  }
  header_.metadata.push_back({std::move(key), std::move(*value)});
  return {};
}

Result<MetaValue> GgufParser::ReadValue(MetaType type) {
  if (type == MetaType::kArray) return ReadArray();
  if (type == MetaType::kString) {
    HR_ASSIGN_OR_RETURN(std::string text, ReadString(kMetaStringBytesMax, "the string"));
    return MetaValue::String(std::move(text));
  }
  HR_ASSIGN_OR_RETURN(MetaValue::Data data, ReadScalar(type));
  return MetaValue::Scalar(type, std::move(data));
}

Result<MetaValue::Data> GgufParser::ReadScalar(MetaType type) {
  const auto read = [this]<typename Stored, typename Kept>(Stored raw, Kept) -> Result<MetaValue::Data> {
    HR_RETURN_IF_ERROR(cursor_.ReadNumber(raw));
    return MetaValue::Data(std::in_place_type<Kept>, static_cast<Kept>(raw));
  };
  switch (type) {
    case MetaType::kU8:
      return read(uint8_t{}, uint64_t{});
    case MetaType::kU16:
      return read(uint16_t{}, uint64_t{});
    case MetaType::kU32:
      return read(uint32_t{}, uint64_t{});
    case MetaType::kU64:
      return read(uint64_t{}, uint64_t{});
    case MetaType::kI8:
      return read(int8_t{}, int64_t{});
    case MetaType::kI16:
      return read(int16_t{}, int64_t{});
    case MetaType::kI32:
      return read(int32_t{}, int64_t{});
    case MetaType::kI64:
      return read(int64_t{}, int64_t{});
    case MetaType::kF32:
      return read(float{}, double{});
    case MetaType::kF64:
      return read(double{}, double{});
    case MetaType::kBool: {
      uint8_t raw = 0;
      HR_RETURN_IF_ERROR(cursor_.ReadNumber(raw));
      if (raw > 1) return cursor_.Corrupt(ErrorCode::kCorruptData, fmt::format("a boolean of {}", raw));
      return MetaValue::Data(raw == 1);
    }
    default:
      return cursor_.Corrupt(ErrorCode::kUnsupported,
                             fmt::format("unknown metadata type {}", static_cast<uint32_t>(type)));
  }
}

Result<MetaValue> GgufParser::ReadArray() {
  uint32_t raw_type = 0;
  uint64_t count = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(raw_type));
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(count));
  const auto type = static_cast<MetaType>(raw_type);
  if (type == MetaType::kArray) return cursor_.Corrupt(ErrorCode::kUnsupported, "an array of arrays");
  // A string takes at least its length.
  const uint64_t element_bytes = type == MetaType::kString ? 8 : MetaScalarBytes(type);
  if (element_bytes == 0) {
    return cursor_.Corrupt(ErrorCode::kUnsupported, fmt::format("unknown metadata type {}", raw_type));
  }
  if (count > kMetaArrayElementsMax) {
    return cursor_.Corrupt(ErrorCode::kTooLarge,
                           fmt::format("an array of {} elements; at most {} are read", count, kMetaArrayElementsMax));
  }
  if (count * element_bytes > cursor_.remaining()) {
    return cursor_.Corrupt(
        ErrorCode::kCorruptData,
        fmt::format("an array of {} elements needs {} bytes from byte {}, but the file has only {}; is "
                    "the download complete?",
                    count, count * element_bytes, cursor_.offset(), cursor_.source().size()));
  }
  const auto read = [&]() -> Result<MetaValue::Data> {
    switch (type) {
      case MetaType::kU8:
      case MetaType::kBool:
        return ReadInts<uint8_t>(count);
      case MetaType::kI8:
        return ReadInts<int8_t>(count);
      case MetaType::kU16:
        return ReadInts<uint16_t>(count);
      case MetaType::kI16:
        return ReadInts<int16_t>(count);
      case MetaType::kU32:
        return ReadInts<uint32_t>(count);
      case MetaType::kI32:
        return ReadInts<int32_t>(count);
      case MetaType::kU64:
        return ReadInts<uint64_t>(count);
      case MetaType::kI64:
        return ReadInts<int64_t>(count);
      case MetaType::kF32:
        return ReadFloats<float>(count);
      case MetaType::kF64:
        return ReadFloats<double>(count);
      default:
        return ReadStrings(count);
    }
  };
  HR_ASSIGN_OR_RETURN(MetaValue::Data data, read());
  return MetaValue::Array(type, std::move(data));
}

template <typename T>
Result<MetaValue::Data> GgufParser::ReadFloats(uint64_t count) {
  HR_RETURN_IF_ERROR(Charge(count * sizeof(float)));
  std::vector<float> values(count);
  for (float& value : values) {
    T raw{};
    HR_RETURN_IF_ERROR(cursor_.ReadNumber(raw));
    value = static_cast<float>(raw);
  }
  return MetaValue::Data(std::move(values));
}

template <typename T>
Result<MetaValue::Data> GgufParser::ReadInts(uint64_t count) {
  HR_RETURN_IF_ERROR(Charge(count * sizeof(int64_t)));
  std::vector<int64_t> values(count);
  for (int64_t& value : values) {
    T raw{};
    HR_RETURN_IF_ERROR(cursor_.ReadNumber(raw));
    if (std::is_same_v<T, uint64_t> && raw > static_cast<T>(INT64_MAX)) {
      return cursor_.Corrupt(ErrorCode::kUnsupported, "an array element above 2^63 - 1");
    }
    value = static_cast<int64_t>(raw);
  }
  return MetaValue::Data(std::move(values));
}

Result<MetaValue::Data> GgufParser::ReadStrings(uint64_t count) {
  HR_RETURN_IF_ERROR(Charge(count * sizeof(std::string)));
  std::vector<std::string> values(count);
  for (std::string& value : values) {
    HR_ASSIGN_OR_RETURN(value, ReadString(kMetaStringBytesMax, "a string of the array"));
  }
  return MetaValue::Data(std::move(values));
}

Result<std::string> GgufParser::ReadString(uint64_t bytes_max, std::string_view what) {
  uint64_t bytes = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(bytes));
  if (bytes > bytes_max) {
    return cursor_.Corrupt(ErrorCode::kTooLarge,
                           fmt::format("{} has {} bytes; at most {} are read", what, bytes, bytes_max));
  }
  if (bytes > cursor_.remaining()) {
    return cursor_.Corrupt(ErrorCode::kCorruptData,
                           fmt::format("{} needs {} bytes from byte {}, but the file has only {}; is the download "
                                       "complete?",
                                       what, bytes, cursor_.offset(), cursor_.source().size()));
  }
  // Up to 15 bytes lie inside std::string; more take a heap block.
  constexpr uint64_t kInlineBytes = 15;
  constexpr uint64_t kHeapBlockBytes = 24;
  if (bytes > kInlineBytes) HR_RETURN_IF_ERROR(Charge(bytes + kHeapBlockBytes));
  std::string text(bytes, '\0');
  HR_RETURN_IF_ERROR(cursor_.Read(std::as_writable_bytes(std::span(text))));
  return text;
}

Status GgufParser::Charge(uint64_t bytes) {
  if (bytes > meta_bytes_left_) {
    return cursor_.Corrupt(ErrorCode::kTooLarge,
                           fmt::format("the metadata needs more than {} bytes of memory", kMetaBytesMax));
  }
  meta_bytes_left_ -= bytes;
  header_.meta_bytes += bytes;
  return {};
}

Status GgufParser::CheckKeysDistinct() {
  std::vector<std::string_view> keys;
  keys.reserve(header_.metadata.size());
  for (const MetaEntry& entry : header_.metadata) keys.push_back(entry.key);
  std::ranges::sort(keys);
  const auto twin = std::ranges::adjacent_find(keys);
  if (twin == keys.end()) return {};
  cursor_.SetPlace("the metadata", 0, 0);
  return cursor_.Corrupt(ErrorCode::kCorruptData, fmt::format("key {} appears twice", EscapeForLog(*twin, 100)));
}

Status GgufParser::ReadTensorTable() {
  header_.tensors.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    cursor_.SetPlace("tensor", i + 1, tensor_count_);
    HR_ASSIGN_OR_RETURN(TensorInfo tensor, ReadTensor());
    header_.tensors.push_back(std::move(tensor));
  }
  return {};
}

Result<TensorInfo> GgufParser::ReadTensor() {
  TensorInfo tensor;
  // Names are bounded by kTensorsMax * kTensorNameBytesMax, not by the metadata's budget.
  uint64_t name_bytes = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(name_bytes));
  if (name_bytes == 0 || name_bytes > kTensorNameBytesMax) {
    return cursor_.Corrupt(ErrorCode::kCorruptData,
                           fmt::format("the name has {} bytes; 1 to {} are read", name_bytes, kTensorNameBytesMax));
  }
  tensor.name.resize(name_bytes);
  HR_RETURN_IF_ERROR(cursor_.Read(std::as_writable_bytes(std::span(tensor.name))));
  uint32_t dimensions = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(dimensions));
  if (dimensions == 0 || dimensions > kTensorDimensionsMax) {
    return cursor_.Corrupt(ErrorCode::kCorruptData,
                           fmt::format("{} has {} dimensions; 1 to {} are read", EscapeForLog(tensor.name), dimensions,
                                       kTensorDimensionsMax));
  }
  tensor.shape.resize(dimensions);
  for (uint32_t i = 0; i < dimensions; ++i) {  // innermost first
    uint64_t length = 0;
    HR_RETURN_IF_ERROR(cursor_.ReadNumber(length));
    if (length == 0 || length > INT64_MAX) {
      return cursor_.Corrupt(ErrorCode::kCorruptData,
                             fmt::format("{} has a dimension of {}", EscapeForLog(tensor.name), length));
    }
    tensor.shape[dimensions - 1 - i] = static_cast<int64_t>(length);
  }
  HR_RETURN_IF_ERROR(SetShape(tensor));
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(tensor.file_offset));
  return tensor;
}

// Reads the type and computes the bytes of the tensor.
Status GgufParser::SetShape(TensorInfo& tensor) {
  uint32_t number = 0;
  HR_RETURN_IF_ERROR(cursor_.ReadNumber(number));
  const std::optional<DType> dtype = DTypeFromGguf(number);
  if (!dtype) {
    return cursor_.Corrupt(ErrorCode::kUnsupported,
                           fmt::format("{} has the unknown type number {}; computable types are {}",
                                       EscapeForLog(tensor.name), number, ComputableTypeNames()));
  }
  tensor.dtype = *dtype;
  auto row_bytes = RowBytes(*dtype, tensor.columns());
  if (!row_bytes) {
    return cursor_.Corrupt(ErrorCode::kCorruptData,
                           fmt::format("{}: {}", EscapeForLog(tensor.name), row_bytes.error().message));
  }
  tensor.bytes = *row_bytes;
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) {
    const auto length = static_cast<uint64_t>(tensor.shape[i]);
    if (tensor.bytes > INT64_MAX / length) {
      return cursor_.Corrupt(ErrorCode::kCorruptData,
                             fmt::format("{} has more than 2^63 bytes", EscapeForLog(tensor.name)));
    }
    tensor.bytes *= length;
  }
  return {};
}

// Turns offsets within the data section into offsets within the file and checks them against its size.
Status GgufParser::PlaceTensors() {
  const uint64_t file_bytes = cursor_.source().size();
  const uint64_t data_begin = (cursor_.offset() + alignment_ - 1) / alignment_ * alignment_;
  header_.header_bytes = std::min(data_begin, file_bytes);  // a file without tensors may lack the padding
  for (uint64_t i = 0; i < header_.tensors.size(); ++i) {
    TensorInfo& tensor = header_.tensors[i];
    cursor_.SetPlace("tensor", i + 1, tensor_count_);
    const std::string name = EscapeForLog(tensor.name);
    if (tensor.file_offset % alignment_ != 0) {
      return cursor_.Corrupt(ErrorCode::kCorruptData, fmt::format("{} begins at {}, no multiple of the alignment {}",
                                                                  name, tensor.file_offset, alignment_));
    }
    // data_begin is at most the file's size and an alignment: no sum below wraps once the offset is bounded.
    if (tensor.file_offset > INT64_MAX - data_begin) {
      return cursor_.Corrupt(ErrorCode::kCorruptData, fmt::format("{} begins past 2^63", name));
    }
    tensor.file_offset += data_begin;
    if (tensor.file_offset > file_bytes || tensor.bytes > file_bytes - tensor.file_offset) {
      return cursor_.Corrupt(ErrorCode::kCorruptData,
                             fmt::format("{} needs bytes up to {}, but the file has only {}; is the download complete?",
                                         name, tensor.file_offset + tensor.bytes, file_bytes));
    }
  }
  return {};
}

}  // namespace

Result<ParsedHeader> ReadGgufHeader(const ByteSource& source, uint64_t meta_bytes_max, uint64_t tensors_max) {
  return GgufParser(source, meta_bytes_max, tensors_max).Parse();
}

}  // namespace headrace
