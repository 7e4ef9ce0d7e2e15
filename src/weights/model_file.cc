#include "weights/model_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace headrace {

int64_t TensorInfo::rows() const {
  int64_t count = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) count *= shape[i];
  return count;
}

std::string ModelFile::name() const { return sources_.front()->name(); }

uint64_t ModelFile::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& source : sources_) bytes += source->size();
  return bytes;
}

const TensorInfo* ModelFile::Find(std::string_view name) const {
  const auto name_of = [this](uint32_t index) { return std::string_view(tensors_[index].name); };
  const auto found = std::ranges::lower_bound(tensors_by_name_, name, {}, name_of);
  if (found == tensors_by_name_.end() || name_of(*found) != name) return nullptr;
  return &tensors_[*found];
}

Status ModelFile::Read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const {
  CHECK_LT(tensor.file_index, sources_.size());
  if (offset > tensor.bytes || out.size() > tensor.bytes - offset) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("tensor {} has {} bytes; {} from byte {} were asked for", EscapeForLog(tensor.name),
                            tensor.bytes, out.size(), offset),
                tensor.name);
  }
  auto read = sources_[tensor.file_index]->Read(tensor.file_offset + offset, out);
  if (!read) {
    read.error().message = fmt::format(
        "tensor {}: {}; nothing may write to a model while it loads: check its disk, or "
        "copy or pull it again",
        EscapeForLog(tensor.name), read.error().message);
    read.error().field = tensor.name;
  }
  return read;
}

std::vector<FileState> ModelFile::States() const {
  std::vector<FileState> states;
  for (const auto& source : sources_) {
    const auto state = source->State();
    if (!state) return {};
    states.push_back(*state);
  }
  return states;
}

Status ModelFile::CheckComputable(const TensorInfo& tensor) {
  const DTypeInfo& info = Info(tensor.dtype);
  if (info.computable) return {};
  return Fail(
      ErrorCode::kUnsupported,
      fmt::format("tensor {} has type {}, which is not computed; computable types are {}: convert the model to one "
                  "of them",
                  EscapeForLog(tensor.name), info.name, ComputableTypeNames()),
      tensor.name);
}

Status ModelFile::CheckComputable() const {
  for (const TensorInfo& tensor : tensors_) HR_RETURN_IF_ERROR(CheckComputable(tensor));
  return {};
}

const MetaValue* ModelFile::Meta(std::string_view key) const {
  const auto found = std::ranges::find(metadata_, key, &MetaEntry::key);
  return found == metadata_.end() ? nullptr : &found->value;
}

std::optional<int64_t> ModelFile::MetaInt(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsInt() : std::nullopt;
}
std::optional<double> ModelFile::MetaFloat(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsFloat() : std::nullopt;
}
std::optional<std::string> ModelFile::MetaString(std::string_view key) const {
  const MetaValue* value = Meta(key);
  if (value == nullptr || value->AsString() == nullptr) return std::nullopt;
  return *value->AsString();
}
std::optional<bool> ModelFile::MetaBool(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsBool() : std::nullopt;
}
const std::vector<std::string>* ModelFile::MetaStrings(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsStrings() : nullptr;
}
const std::vector<float>* ModelFile::MetaFloats(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsFloats() : nullptr;
}
const std::vector<int64_t>* ModelFile::MetaInts(std::string_view key) const {
  const MetaValue* value = Meta(key);
  return value != nullptr ? value->AsInts() : nullptr;
}

}  // namespace headrace
