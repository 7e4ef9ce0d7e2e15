#include "weights/safetensors_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "weights/json_scan.h"
#include "weights/limits.h"
#include "weights/safetensors_format.h"

namespace headrace {
namespace {

using Json = nlohmann::json;
constexpr uint64_t kLengthBytes = 8;
constexpr int kHeaderDepthMax = 3;  // { tensor: { shape: [ ] } }

// Takes the header's JSON as it is parsed: {"name": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}, ...},
// and under __metadata__ strings only. Whatever does not fit stops the parser.
class HeaderSax final : public nlohmann::json_sax<Json> {
 public:
  HeaderSax(std::string file_name, uint64_t meta_bytes_max, uint64_t tensors_max)
      : file_name_(std::move(file_name)), meta_bytes_left_(meta_bytes_max), tensors_max_(tensors_max) {}
  Status& status() { return status_; }
  ParsedHeader& header() { return header_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return Unexpected("a fraction"); }
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(size_t) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return Refuse(ErrorCode::kCorruptData, fmt::format("the header is no valid JSON at byte {}", position));
  }

 private:
  enum class In : uint8_t { kNothing, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool Refuse(ErrorCode code, std::string_view what) {
    status_ = Fail(code, fmt::format("{}: {}", file_name_, what));
    return false;
  }
  // `what` about the tensor being read.
  bool RefuseTensor(ErrorCode code, std::string_view what) {
    const std::string name = EscapeForLog(tensor_.name);
    status_ = Fail(code, fmt::format("{}: tensor {}: {}", file_name_, name, what), name);
    return false;
  }
  bool Unexpected(std::string_view what) {
    if (in_ >= In::kTensor) return RefuseTensor(ErrorCode::kCorruptData, fmt::format("unexpected {}", what));
    return Refuse(ErrorCode::kCorruptData, fmt::format("unexpected {} in the header", what));
  }
  bool BeginTensor();
  bool EndTensor();
  bool ComputeBytes();

  const std::string file_name_;
  uint64_t meta_bytes_left_;
  const uint64_t tensors_max_;
  Status status_;
  ParsedHeader header_;
  In in_ = In::kNothing;
  std::string key_;
  TensorInfo tensor_;
  std::vector<uint64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
};

bool HeaderSax::number_unsigned(number_unsigned_t value) {
  if (in_ == In::kShape) {
    if (tensor_.shape.size() == kSafetensorsDimensionsMax) {
      return RefuseTensor(ErrorCode::kTooLarge, fmt::format("more than {} dimensions", kSafetensorsDimensionsMax));
    }
    if (value > INT64_MAX) return RefuseTensor(ErrorCode::kCorruptData, fmt::format("a dimension of {}", value));
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return true;
  }
  if (in_ == In::kOffsets && offsets_.size() < 2) {
    offsets_.push_back(value);
    return true;
  }
  return Unexpected("a number");
}

bool HeaderSax::string(string_t& value) {
  if (in_ == In::kMetadata) {
    const uint64_t bytes = sizeof(MetaEntry) + key_.size() + value.size();
    if (header_.metadata.size() >= kMetaKeysMax || bytes > meta_bytes_left_) {
      return Refuse(ErrorCode::kTooLarge,
                    fmt::format("metadata has more than {} keys or {} bytes", kMetaKeysMax, kMetaBytesMax));
    }
    meta_bytes_left_ -= bytes;
    header_.meta_bytes += bytes;
    header_.metadata.push_back({key_, MetaValue::String(std::move(value))});
    return true;
  }
  if (in_ != In::kTensor || key_ != "dtype" || has_dtype_) return Unexpected("a string");
  const std::optional<DType> dtype = DTypeFromSafetensors(value);
  if (!dtype) {
    return RefuseTensor(ErrorCode::kUnsupported, fmt::format("unknown type {}; computable types are {}",
                                                             EscapeForLog(value, 20), ComputableTypeNames()));
  }
  tensor_.dtype = *dtype;
  return has_dtype_ = true;
}

bool HeaderSax::start_object(size_t) {
  if (in_ == In::kNothing) {
    in_ = In::kTop;
    return true;
  }
  if (in_ != In::kTop) return Unexpected("an object");
  if (key_ != kSafetensorsMetadataKey) return BeginTensor();
  in_ = In::kMetadata;
  return true;
}

bool HeaderSax::key(string_t& value) {
  key_ = std::move(value);
  if (in_ == In::kMetadata && key_.size() > kMetaKeyBytesMax) {
    return Refuse(ErrorCode::kTooLarge,
                  fmt::format("a metadata key of {} bytes; at most {} are read", key_.size(), kMetaKeyBytesMax));
  }
  return true;
}

bool HeaderSax::end_object() {
  if (in_ == In::kTensor) return EndTensor();
  in_ = in_ == In::kMetadata ? In::kTop : In::kNothing;
  return true;
}

bool HeaderSax::start_array(size_t) {
  if (in_ == In::kTensor && key_ == "shape" && !has_shape_) {
    in_ = In::kShape;
    return has_shape_ = true;
  }
  if (in_ == In::kTensor && key_ == "data_offsets" && offsets_.empty()) {
    in_ = In::kOffsets;
    return true;
  }
  return Unexpected("an array");
}

bool HeaderSax::end_array() {
  if (in_ == In::kOffsets && offsets_.size() != 2) {
    return RefuseTensor(ErrorCode::kCorruptData, "data_offsets must be two numbers");
  }
  in_ = In::kTensor;
  return true;
}

bool HeaderSax::BeginTensor() {
  if (header_.tensors.size() >= tensors_max_) {
    return Refuse(ErrorCode::kTooLarge, fmt::format("more than {} tensors in one model", kTensorsMax));
  }
  if (key_.empty() || key_.size() > kTensorNameBytesMax) {
    return Refuse(ErrorCode::kTooLarge,
                  fmt::format("a tensor name of {} bytes; 1 to {} are read", key_.size(), kTensorNameBytesMax));
  }
  tensor_ = TensorInfo{};
  tensor_.name = key_;
  tensor_.shape.reserve(2);
  offsets_.clear();
  has_dtype_ = has_shape_ = false;
  in_ = In::kTensor;
  return true;
}

bool HeaderSax::EndTensor() {
  if (!has_dtype_) return RefuseTensor(ErrorCode::kCorruptData, "dtype is missing");
  if (!has_shape_) return RefuseTensor(ErrorCode::kCorruptData, "shape is missing");
  if (offsets_.empty()) return RefuseTensor(ErrorCode::kCorruptData, "data_offsets is missing");
  if (offsets_[0] > offsets_[1]) {
    return RefuseTensor(ErrorCode::kCorruptData,
                        fmt::format("data_offsets [{}, {}] end before they begin", offsets_[0], offsets_[1]));
  }
  if (!ComputeBytes()) return false;
  if (tensor_.bytes != offsets_[1] - offsets_[0]) {
    return RefuseTensor(ErrorCode::kCorruptData,
                        fmt::format("shape and type {} need {} bytes, but data_offsets span {}",
                                    Info(tensor_.dtype).name, tensor_.bytes, offsets_[1] - offsets_[0]));
  }
  tensor_.file_offset = offsets_[0];
  header_.tensors.push_back(std::move(tensor_));
  in_ = In::kTop;
  return true;
}

bool HeaderSax::ComputeBytes() {
  uint64_t bytes = static_cast<uint64_t>(Info(tensor_.dtype).block_bytes);
  const bool empty = std::ranges::find(tensor_.shape, 0) != tensor_.shape.end();
  for (const int64_t length : tensor_.shape) {
    if (empty) break;
    if (bytes > INT64_MAX / static_cast<uint64_t>(length)) {
      return RefuseTensor(ErrorCode::kCorruptData, "more than 2^63 bytes");
    }
    bytes *= static_cast<uint64_t>(length);
  }
  tensor_.bytes = empty ? 0 : bytes;
  return true;
}

Result<std::string> ReadHeaderText(const ByteSource& source) {
  uint64_t length = 0;
  if (source.size() < kLengthBytes) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("{}: the header needs at least {} bytes, but the file has only {}; is the "
                            "download complete?",
                            source.name(), kLengthBytes + 2, source.size()));
  }
  HR_RETURN_IF_ERROR(source.Read(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kHeaderBytesMax) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{}: a header of {} bytes; at most {} are read", source.name(), length, kHeaderBytesMax));
  }
  if (length < 2) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("{}: a header of {} bytes is no JSON object", source.name(), length));
  }
  if (length > source.size() - kLengthBytes) {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("{}: the header needs bytes up to {}, but the file has only {}; is the download "
                            "complete?",
                            source.name(), kLengthBytes + length, source.size()));
  }
  std::string text(length, '\0');
  HR_RETURN_IF_ERROR(source.Read(kLengthBytes, std::as_writable_bytes(std::span(text))));
  if (text.front() != '{') {
    return Fail(ErrorCode::kCorruptData, fmt::format("{}: the header does not begin with a brace", source.name()));
  }
  return text;
}

Status CheckMetadataKeys(const ByteSource& source, const ParsedHeader& header) {
  std::vector<std::string_view> keys;
  for (const MetaEntry& entry : header.metadata) keys.push_back(entry.key);
  std::ranges::sort(keys);
  const auto twin = std::ranges::adjacent_find(keys);
  if (twin == keys.end()) return {};
  return Fail(ErrorCode::kCorruptData,
              fmt::format("{}: metadata key {} appears twice", source.name(), EscapeForLog(*twin, 100)));
}

// The data section must end where the file ends. Overlaps are the caller's to find, so equal sums mean no gaps.
Status PlaceTensors(const ByteSource& source, ParsedHeader& header) {
  uint64_t covered = 0;
  for (TensorInfo& tensor : header.tensors) {
    const uint64_t available = source.size() - header.header_bytes;
    if (tensor.file_offset > available || tensor.bytes > available - tensor.file_offset) {
      const std::string name = EscapeForLog(tensor.name);
      return Fail(
          ErrorCode::kCorruptData,
          fmt::format(
              "{}: tensor {} needs bytes up to {} of the data, but the file has only {}; is the download complete?",
              source.name(), name, tensor.file_offset + tensor.bytes, available),
          name);
    }
    covered += tensor.bytes;  // at most kTensorsMax times the file's size, below 2^64
    tensor.file_offset += header.header_bytes;
  }
  if (covered != source.size() - header.header_bytes) {
    return Fail(ErrorCode::kCorruptData, fmt::format("{}: the tensors have {} bytes, but the data section {}",
                                                     source.name(), covered, source.size() - header.header_bytes));
  }
  return {};
}

}  // namespace

Result<ParsedHeader> ReadSafetensorsHeader(const ByteSource& source, uint64_t meta_bytes_max, uint64_t tensors_max) {
  HR_ASSIGN_OR_RETURN(const std::string text, ReadHeaderText(source));
  HR_RETURN_IF_ERROR(CheckJsonShape(text, source.name(), {kHeaderDepthMax, kJsonTokenBytesMax}));
  HeaderSax sax(source.name(), meta_bytes_max, tensors_max);
  if (!Json::sax_parse(text, &sax)) {
    if (sax.status()) {
      return Fail(ErrorCode::kCorruptData, fmt::format("{}: the header is no valid JSON", source.name()));
    }
    return Fail(std::move(sax.status()).error());
  }
  ParsedHeader header = std::move(sax.header());
  header.header_bytes = kLengthBytes + text.size();
  HR_RETURN_IF_ERROR(CheckMetadataKeys(source, header));
  HR_RETURN_IF_ERROR(PlaceTensors(source, header));
  return header;
}

}  // namespace headrace
