#include "weights/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "weights/gguf_format.h"
#include "weights/limits.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;

uint64_t PaddedTo(uint64_t alignment, uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

template <typename T>
void Put(Bytes& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void PutString(Bytes& out, std::string_view text) {
  Put(out, uint64_t{text.size()});
  const auto bytes = std::as_bytes(std::span(text));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// A number of any class as the stored type.
template <typename T>
void PutNumber(Bytes& out, MetaType type, T value) {
  switch (type) {
    case MetaType::kU8:
    case MetaType::kBool:
      return Put(out, static_cast<uint8_t>(value));
    case MetaType::kI8:
      return Put(out, static_cast<int8_t>(value));
    case MetaType::kU16:
      return Put(out, static_cast<uint16_t>(value));
    case MetaType::kI16:
      return Put(out, static_cast<int16_t>(value));
    case MetaType::kU32:
      return Put(out, static_cast<uint32_t>(value));
    case MetaType::kI32:
      return Put(out, static_cast<int32_t>(value));
    case MetaType::kU64:
      return Put(out, static_cast<uint64_t>(value));
    case MetaType::kI64:
      return Put(out, static_cast<int64_t>(value));
    case MetaType::kF32:
      return Put(out, static_cast<float>(value));
    case MetaType::kF64:
      return Put(out, static_cast<double>(value));
    case MetaType::kString:
    case MetaType::kArray:
      break;
  }
  CHECK(false);
}

template <typename T>
void PutElement(Bytes& out, MetaType type, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    PutString(out, value);
  } else {
    PutNumber(out, type, value);
  }
}

template <typename T>
constexpr bool kIsVector = false;
template <typename T>
constexpr bool kIsVector<std::vector<T>> = true;

void PutValue(Bytes& out, const MetaValue& value) {
  Put(out, static_cast<uint32_t>(value.type()));
  std::visit(
      [&]<typename T>(const T& data) {
        if constexpr (kIsVector<T>) {
          Put(out, static_cast<uint32_t>(value.element_type()));
          Put(out, uint64_t{data.size()});
          for (const auto& element : data) PutElement(out, value.element_type(), element);
        } else {
          PutElement(out, value.type(), data);
        }
      },
      value.data());
}

// A temporary file that becomes `path` when all is written.
class FileInProgress {
 public:
  explicit FileInProgress(const std::string& path)
      : path_(path),
        temporary_(path + ".tmp"),
        fd_(open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {}
  ~FileInProgress() {
    if (fd_ < 0) return;
    close(fd_);
    unlink(temporary_.c_str());
  }
  FileInProgress(const FileInProgress&) = delete;
  FileInProgress& operator=(const FileInProgress&) = delete;

  bool ok() const { return fd_ >= 0; }
  Status Append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t put = write(fd_, bytes.data(), bytes.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return Refused("write");
      bytes = bytes.subspan(static_cast<size_t>(put));
    }
    return {};
  }
  Status Commit() {
    if (fsync(fd_) != 0) return Refused("sync");
    if (rename(temporary_.c_str(), path_.c_str()) != 0) return Refused("rename");
    close(std::exchange(fd_, -1));
    return {};
  }
  std::unexpected<Error> Refused(std::string_view doing) const {
    return Fail(ErrorCode::kIo, fmt::format("cannot {} {}: {}", doing, std::filesystem::path(path_).filename().string(),
                                            std::strerror(errno)));
  }

 private:
  const std::string path_;
  const std::string temporary_;
  int fd_;
};

}  // namespace

GgufWriter::GgufWriter(uint64_t alignment) : alignment_(alignment) {
  CHECK(std::has_single_bit(alignment) && alignment <= kAlignmentMax);
  if (alignment != kGgufAlignmentDefault) {
    Add(std::string(kGgufAlignmentKey), MetaValue::U32(static_cast<uint32_t>(alignment)));
  }
}

void GgufWriter::Add(std::string key, MetaValue value) { metadata_.push_back({std::move(key), std::move(value)}); }

void GgufWriter::AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, std::vector<std::byte> bytes) {
  AddTensor(std::move(name), dtype, std::move(shape),
            [bytes = std::move(bytes)]() -> Result<std::vector<std::byte>> { return bytes; });
}

void GgufWriter::AddTensor(std::string name, DType dtype, std::vector<int64_t> shape, Produce produce) {
  CHECK(!shape.empty() && shape.size() <= kTensorDimensionsMax);
  CHECK(GgufFromDType(dtype).has_value());
  const auto row_bytes = RowBytes(dtype, shape.back());
  CHECK(row_bytes.has_value());
  uint64_t bytes = *row_bytes;
  for (size_t i = 0; i + 1 < shape.size(); ++i) bytes *= static_cast<uint64_t>(shape[i]);
  tensors_.push_back({std::move(name), dtype, std::move(shape), bytes, std::move(produce)});
}

Result<std::vector<std::byte>> GgufWriter::Build() const {
  Bytes file;
  HR_RETURN_IF_ERROR(Emit([&](std::span<const std::byte> bytes) -> Status {
    file.insert(file.end(), bytes.begin(), bytes.end());
    return {};
  }));
  return file;
}

Status GgufWriter::Write(const std::string& path) const {
  FileInProgress file(path);
  if (!file.ok()) return file.Refused("create");
  HR_RETURN_IF_ERROR(Emit([&](std::span<const std::byte> bytes) { return file.Append(bytes); }));
  return file.Commit();
}

Status GgufWriter::Emit(const Sink& sink) const {
  HR_RETURN_IF_ERROR(sink(Header()));
  for (const Tensor& tensor : tensors_) {
    HR_ASSIGN_OR_RETURN(Bytes bytes, tensor.produce());
    if (bytes.size() != tensor.bytes) {
      return Fail(
          ErrorCode::kInternal,
          fmt::format("tensor {} was made with {} bytes instead of {}", tensor.name, bytes.size(), tensor.bytes),
          tensor.name);
    }
    HR_RETURN_IF_ERROR(sink(bytes));
    HR_RETURN_IF_ERROR(sink(Bytes(PaddedTo(alignment_, tensor.bytes) - tensor.bytes)));
  }
  return {};
}

std::vector<std::byte> GgufWriter::Header() const {
  Bytes out;
  for (const char c : kGgufMagic) Put(out, c);
  Put(out, kGgufVersion);
  Put(out, uint64_t{tensors_.size()});
  Put(out, uint64_t{metadata_.size()});
  for (const MetaEntry& entry : metadata_) {
    PutString(out, entry.key);
    PutValue(out, entry.value);
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    PutString(out, tensor.name);
    Put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) Put(out, static_cast<uint64_t>(tensor.shape[i]));
    Put(out, *GgufFromDType(tensor.dtype));
    Put(out, offset);
    offset += PaddedTo(alignment_, tensor.bytes);
  }
  out.resize(PaddedTo(alignment_, out.size()));
  return out;
}

}  // namespace headrace
