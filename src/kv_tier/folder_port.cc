#include "kv_tier/folder_port.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace headrace {
namespace {

constexpr char kLockName[] = "/lock";

Error SystemError(const char* doing, int code) {
  return {code == EACCES || code == EROFS || code == EPERM ? ErrorCode::kPermissionDenied : ErrorCode::kIo,
          fmt::format("the cache folder does not let itself {}: {}", doing, std::strerror(code)), "cache-dir", 0};
}

timespec TimeOf(int64_t ns) {
  ns = std::max<int64_t>(ns, 0);
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

// Everything goes through one descriptor of the folder, and no name is followed through a link.
class SystemFolder final : public FolderPort {
 public:
  explicit SystemFolder(int fd) : fd_(fd) {}
  ~SystemFolder() override {
    for (const int lock : locks_) close(lock);
    close(fd_);
  }

  Status MakeFolder(const std::string& path) override {
    for (size_t end = path.find('/');; end = path.find('/', end + 1)) {
      if (mkdirat(fd_, path.substr(0, end).c_str(), 0700) != 0 && errno != EEXIST)
        return Fail(SystemError("be written", errno));
      if (end == std::string::npos) return {};
    }
  }

  Status Lock(const std::string& path) override {
    const int lock = openat(fd_, (path + kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0) return Fail(SystemError("be locked", errno));
    if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
      const int code = errno;
      close(lock);
      if (code == EWOULDBLOCK)
        return Fail(ErrorCode::kConflict, "another server of the same model uses it", "cache-dir");
      return Fail(SystemError("be locked", code));
    }
    locks_.push_back(lock);
    return {};
  }

  bool Locked(const std::string& path) override {
    const int lock = openat(fd_, (path + kLockName).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (lock < 0) return false;
    const bool held = flock(lock, LOCK_SH | LOCK_NB) != 0;
    close(lock);
    return held;
  }

  std::vector<FolderEntry> List(const std::string& path, size_t entries_max) override {
    std::vector<FolderEntry> entries;
    const int fd = openat(fd_, path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return entries;
    DIR* const dir = fdopendir(fd);
    if (dir == nullptr) {
      close(fd);
      return entries;
    }
    while (const dirent* entry = readdir(dir)) {
      struct stat info{};
      if (entry->d_name[0] == '.' || fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) continue;
      if (entries.size() == entries_max) break;
      entries.push_back({entry->d_name, static_cast<uint64_t>(info.st_size),
                         int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, S_ISDIR(info.st_mode)});
    }
    closedir(dir);
    return entries;
  }

  // Without fsync: what a power cut leaves fails authentication, and a lost block is only computed again.
  Status Write(const std::string& path, std::span<const std::byte> bytes, int64_t modified_ns) override {
    const std::string temporary = path + std::string(kUnfinishedSuffix);
    const int fd = openat(fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return Fail(SystemError("be written", errno));
    int failed = 0;
    while (!bytes.empty() && failed == 0) {
      const ssize_t put = write(fd, bytes.data(), bytes.size());
      if (put < 0 && errno != EINTR) failed = errno;
      if (put > 0) bytes = bytes.subspan(static_cast<size_t>(put));
    }
    const timespec times[2] = {TimeOf(modified_ns), TimeOf(modified_ns)};
    (void)futimens(fd, times);  // only for the order
    close(fd);
    if (failed == 0 && renameat(fd_, temporary.c_str(), fd_, path.c_str()) != 0) failed = errno;
    if (failed == 0) return {};
    unlinkat(fd_, temporary.c_str(), 0);
    return Fail(SystemError("be written", failed));
  }

  Status Read(const std::string& path, std::span<std::byte> out) override {
    const int fd = openat(fd_, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT) return Fail(ErrorCode::kNotFound, "no such file");
    if (fd < 0) return Fail(SystemError("be read", errno));
    const Status status = ReadAll(fd, out);
    close(fd);
    return status;
  }

  void SetModified(const std::string& path, int64_t modified_ns) override {
    const timespec times[2] = {TimeOf(modified_ns), TimeOf(modified_ns)};
    (void)utimensat(fd_, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }

  bool Remove(const std::string& path) override { return unlinkat(fd_, path.c_str(), 0) == 0; }

 private:
  static Status ReadAll(int fd, std::span<std::byte> out) {
    struct stat info{};
    if (fstat(fd, &info) != 0) return Fail(SystemError("be read", errno));
    if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != out.size())
      return Fail(ErrorCode::kCorruptData, "a cached block has another size");
    while (!out.empty()) {
      const ssize_t got = read(fd, out.data(), out.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Fail(SystemError("be read", errno));
      if (got == 0) return Fail(ErrorCode::kCorruptData, "a cached block became shorter");
      out = out.subspan(static_cast<size_t>(got));
    }
    return {};
  }

  const int fd_;
  std::vector<int> locks_;
};

}  // namespace

Result<std::unique_ptr<FolderPort>> OpenFolder(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    std::filesystem::create_directories(path, failed);
    if (failed) return Fail(SystemError("be made", failed.value()));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all, failed);
  }
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Fail(SystemError("be opened", errno));
  return std::make_unique<SystemFolder>(fd);
}

}  // namespace headrace
