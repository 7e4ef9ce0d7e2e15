#include "catalog/partial_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/file.h"
#include "catalog/progress.h"

namespace headrace {
namespace {

constexpr uint64_t kSourceNoteBytesMax = 16'384;  // a URL has at most 8 KiB

Error IoError(const std::string& doing, const std::string& file, int code) {
  if (code == ENOSPC || code == EDQUOT) {
    return Error{ErrorCode::kIo,
                 "disk full while writing " + file +
                     "; what was fetched is kept: free some space and run the same command again",
                 "disk", 0};
  }
  return Error{ErrorCode::kIo, "cannot " + doing + " " + file + ": " + std::strerror(code), "disk", 0};
}

}  // namespace

Result<PartialFile> PartialFile::Open(std::string target, std::string source_url, const PullPorts& ports) {
  PartialFile part(-1, std::move(target), ports);
  part.fd_ = open(part.PartPath().c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (part.fd_ < 0) return Fail(IoError("create", part.FileName() + ".part", errno));
  struct stat info{};
  if (fstat(part.fd_, &info) != 0 || !S_ISREG(info.st_mode))
    return Fail(ErrorCode::kInvalidArgument, part.FileName() + ".part is not a regular file; remove it", "disk");
  if (flock(part.fd_, LOCK_EX | LOCK_NB) != 0)
    return Fail(ErrorCode::kConflict, "another process is fetching " + part.FileName() + "; wait for it or stop it",
                "model");
  // Who had the lock may have renamed this very file to its final name before it let go.
  struct stat named{};
  if (stat(part.PartPath().c_str(), &named) != 0 || named.st_ino != info.st_ino)
    return Fail(ErrorCode::kConflict,
                "another process has just fetched " + part.FileName() + "; run the same command again", "model");
  part.size_ = static_cast<uint64_t>(info.st_size);
  part.ReadSource();
  if (part.source_.url != source_url) {
    part.source_ = {.url = std::move(source_url), .tag = ""};
    HR_RETURN_IF_ERROR(part.Restart());
  } else {
    HR_RETURN_IF_ERROR(part.HashExisting());
  }
  return part;
}

PartialFile::~PartialFile() {
  if (fd_ >= 0) close(fd_);  // gives the lock back too
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      target_(std::move(other.target_)),
      ports_(other.ports_),
      source_(std::move(other.source_)),
      size_(other.size_),
      hash_(std::move(other.hash_)) {}

std::string PartialFile::FileName() const { return std::filesystem::path(target_).filename().string(); }

// Two lines: URL, tag.
void PartialFile::ReadSource() {
  const auto text = ReadWholeFile(SourcePath(), kSourceNoteBytesMax);
  if (!text) return;  // no note: unknown bytes, which Open drops
  const size_t end = text->find('\n');
  source_.url = text->substr(0, end);
  if (end != std::string::npos) source_.tag = text->substr(end + 1);
  while (source_.tag.ends_with('\n')) source_.tag.pop_back();
}

Status PartialFile::NoteTag(std::string tag) {
  source_.tag = std::move(tag);
  return WriteFileAtomically(SourcePath(), source_.url + "\n" + source_.tag + "\n");
}

Status PartialFile::HashExisting() {
  std::vector<std::byte> piece(1u << 20);
  for (uint64_t done = 0; done < size_;) {
    if (ports_->cancelled()) return Fail(PullCancelled());
    const ssize_t got = pread(fd_, piece.data(), piece.size(), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Fail(IoError("read", FileName() + ".part", got < 0 ? errno : EIO));
    hash_.Update(std::span(piece).first(static_cast<size_t>(got)));
    done += static_cast<uint64_t>(got);
  }
  return {};
}

Status PartialFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Fail(IoError("write", FileName() + ".part", put < 0 ? errno : ENOSPC));
    hash_.Update(bytes.first(static_cast<size_t>(put)));
    size_ += static_cast<uint64_t>(put);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Status PartialFile::Restart() {
  if (ftruncate(fd_, 0) != 0) return Fail(IoError("empty", FileName() + ".part", errno));
  size_ = 0;
  hash_ = Sha256();
  return NoteTag("");
}

Status PartialFile::NeedSpace(uint64_t bytes) const {
  const std::string folder = std::filesystem::path(target_).parent_path().string();
  HR_ASSIGN_OR_RETURN(const uint64_t free, ports_->free_bytes(folder.empty() ? "." : folder));
  if (free >= kFreeBytesKept && free - kFreeBytesKept >= bytes) return {};
  return Fail(ErrorCode::kIo,
              FileName() + " needs " + FormatBytes(bytes) + " more (and " + FormatBytes(kFreeBytesKept) +
                  " are left free), but the models folder's disk has " + FormatBytes(free) +
                  " free; free some space or set HEADRACE_MODELS_DIR to another disk",
              "disk");
}

Result<std::string> PartialFile::Finish(uint64_t bytes, const std::string& sha256) {
  if (bytes != 0 && size_ != bytes) {
    const uint64_t got = size_;
    Discard();
    return Fail(ErrorCode::kCorruptData,
                FileName() + " has " + std::to_string(got) + " bytes, but " + std::to_string(bytes) +
                    " were expected; it was not kept",
                "size");
  }
  std::string hash = hash_.FinishHex();
  if (!sha256.empty() && hash != sha256) {
    Discard();
    return Fail(ErrorCode::kCorruptData,
                FileName() + " has SHA-256 " + hash + ", but " + sha256 +
                    " was expected; it was not kept. The source has changed or was tampered with",
                "sha256");
  }
  if (fsync(fd_) != 0) return Fail(IoError("write", FileName() + ".part", errno));
  if (rename(PartPath().c_str(), target_.c_str()) != 0) return Fail(IoError("rename", FileName() + ".part", errno));
  unlink(SourcePath().c_str());
  return hash;
}

void PartialFile::Discard() {
  unlink(PartPath().c_str());
  unlink(SourcePath().c_str());
}

}  // namespace headrace
