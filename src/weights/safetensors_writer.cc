#include "weights/safetensors_writer.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "base/check.h"
#include "weights/safetensors_format.h"

namespace headrace {

void SafetensorsWriter::AddMetadata(std::string key, std::string value) {
  metadata_.emplace_back(std::move(key), std::move(value));
}

void SafetensorsWriter::AddTensor(std::string name, DType dtype, std::vector<int64_t> shape,
                                  std::vector<std::byte> bytes) {
  CHECK(IsSafetensorsType(dtype));
  size_t expected = static_cast<size_t>(Info(dtype).block_bytes);
  for (const int64_t length : shape) expected *= static_cast<size_t>(length);
  CHECK_EQ(bytes.size(), expected);
  tensors_.push_back({std::move(name), dtype, std::move(shape), std::move(bytes)});
}

std::vector<std::byte> SafetensorsWriter::Build() const {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  for (const auto& [key, value] : metadata_) header[std::string(kSafetensorsMetadataKey)][key] = value;
  size_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    header[tensor.name] = {{"dtype", Info(tensor.dtype).name},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins on 8 bytes
  static_assert(std::endian::native == std::endian::little);
  const uint64_t length = text.size();
  std::vector<std::byte> file(sizeof length + text.size());
  std::memcpy(file.data(), &length, sizeof length);
  std::memcpy(file.data() + sizeof length, text.data(), text.size());
  for (const Tensor& tensor : tensors_) file.insert(file.end(), tensor.bytes.begin(), tensor.bytes.end());
  return file;
}

}  // namespace headrace
