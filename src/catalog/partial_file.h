// A file that is being fetched: NAME.part beside its later place, hashed as it grows, renamed only when it is whole.
// Survives the process, so that the next attempt resumes. One writer: a second process is refused. One thread.
// Invariant: the hash is that of the bytes in the file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "catalog/pull_ports.h"
#include "catalog/sha256.h"

namespace headrace {

// Left on the disk by every pull, so that the machine stays usable.
constexpr uint64_t kFreeBytesKept = 64u << 20;

// What makes two attempts the same file. Stored as NAME.part.source.
struct PartSource {
  std::string url;  // or package
  std::string tag;  // ETag or Last-Modified, "" when the server gave none
};

class PartialFile {
 public:
  // Opens or creates target + ".part". What is there is kept only when the source noted beside it is `source`; it is
  // hashed, which takes a second for each GB. Links are refused. Errors: kConflict when another process fetches it,
  // kCancelled, kIo.
  static Result<PartialFile> Open(std::string target, std::string source_url, const PullPorts& ports);
  ~PartialFile();
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;

  uint64_t size() const { return size_; }
  // The tag noted with the bytes that are there.
  const std::string& tag() const { return source_.tag; }

  // kIo with field "disk" when the disk is full; the partial file is kept.
  Status Append(std::span<const std::byte> bytes);
  // Drops all bytes.
  Status Restart();
  Status NoteTag(std::string tag);
  // kIo with field "disk" unless `bytes` more and kFreeBytesKept fit.
  Status NeedSpace(uint64_t bytes) const;
  // Checks length (0: any) and SHA-256 ("": any), syncs and renames; gives the hash. On kCorruptData the partial file
  // is removed, because resuming it would never end well.
  Result<std::string> Finish(uint64_t bytes, const std::string& sha256);
  // Removes the partial file.
  void Discard();

 private:
  PartialFile(int fd, std::string target, const PullPorts& ports)
      : fd_(fd), target_(std::move(target)), ports_(&ports) {}
  std::string PartPath() const { return target_ + ".part"; }
  std::string SourcePath() const { return target_ + ".part.source"; }
  std::string FileName() const;
  void ReadSource();
  Status HashExisting();

  int fd_;
  std::string target_;
  const PullPorts* ports_;
  PartSource source_;
  uint64_t size_ = 0;
  Sha256 hash_;
};

}  // namespace headrace
