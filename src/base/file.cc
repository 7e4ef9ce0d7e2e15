#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace headrace {
namespace {

std::string BaseName(const std::string& path) { return std::filesystem::path(path).filename().string(); }

Error IoError(const std::string& doing, const std::string& path, int code) {
  ErrorCode kind = code == ENOENT   ? ErrorCode::kNotFound
                   : code == EACCES ? ErrorCode::kPermissionDenied
                                    : ErrorCode::kIo;
  return Error{kind, fmt::format("cannot {} {}: {}", doing, BaseName(path), std::strerror(code)), {}, 0};
}

class FileSource final : public ByteSource {
 public:
  FileSource(int fd, uint64_t size, std::string name) : fd_(fd), size_(size), name_(std::move(name)) {}
  ~FileSource() override { close(fd_); }
  uint64_t size() const override { return size_; }
  std::string name() const override { return name_; }
  std::optional<FileState> State() const override {
    struct stat info{};
    if (fstat(fd_, &info) != 0) return std::nullopt;
    const auto ns = [](const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; };
    return FileState{static_cast<uint64_t>(info.st_size), info.st_ino, ns(info.st_mtim), ns(info.st_ctim)};
  }

  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("{} ends at byte {}, but bytes up to {} are needed", name_, size_,
                              static_cast<double>(offset) + static_cast<double>(out.size())));
    }
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Fail(IoError("read", name_, errno));
      if (got == 0) return Fail(ErrorCode::kCorruptData, fmt::format("{} became shorter while it was read", name_));
      done += static_cast<size_t>(got);
    }
    return {};
  }

 private:
  const int fd_;
  const uint64_t size_;
  const std::string name_;
};

class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::byte> bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}
  uint64_t size() const override { return bytes_.size(); }
  std::string name() const override { return name_; }
  Status Read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return Fail(ErrorCode::kCorruptData, fmt::format("{} ends at byte {}", name_, bytes_.size()));
    }
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string name_;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Fail(IoError("open", path, errno));
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is not a regular file", BaseName(path)));
  }
  return std::make_unique<FileSource>(fd, static_cast<uint64_t>(info.st_size), BaseName(path));
}

std::unique_ptr<ByteSource> SourceFromMemory(std::span<const std::byte> bytes, std::string name) {
  return std::make_unique<MemorySource>(bytes, std::move(name));
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  HR_ASSIGN_OR_RETURN(auto source, OpenFile(path));
  if (source->size() > max_bytes) {
    return Fail(ErrorCode::kTooLarge,
                fmt::format("{} has {} bytes; at most {} are read", source->name(), source->size(), max_bytes));
  }
  std::string content(source->size(), '\0');
  HR_RETURN_IF_ERROR(source->Read(0, std::as_writable_bytes(std::span(content))));
  return content;
}

Status WriteFileAtomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return Fail(IoError("create", temporary, errno));
  size_t done = 0;
  int failed = 0;
  while (done < content.size() && failed == 0) {
    const ssize_t put = write(fd, content.data() + done, content.size() - done);
    if (put < 0 && errno != EINTR) failed = errno;
    if (put > 0) done += static_cast<size_t>(put);
  }
  if (failed == 0 && fsync(fd) != 0) failed = errno;
  close(fd);
  if (failed == 0 && rename(temporary.c_str(), path.c_str()) != 0) failed = errno;
  if (failed == 0) return {};
  unlink(temporary.c_str());
  return Fail(IoError("write", path, failed));
}

uint64_t RaiseOpenFilesLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

}  // namespace headrace
