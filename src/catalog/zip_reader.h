// Reads one member of a ZIP archive, as Python packages are. Every offset and length is checked against the file before
// use; member names choose a member and never become paths. Specification: PKWARE APPNOTE 6.3.
// Stored and deflated members; no encryption, no ZIP64 (archives above 4 GiB), no multi-volume archives.
// Immutable after Open; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace headrace {

// A package has some hundred members; the central directory is read into memory.
constexpr uint64_t kZipDirectoryBytesMax = 16u << 20;

struct ZipMember {
  std::string name;
  uint16_t flags = 0;
  uint16_t method = 0;  // 0 stored, 8 deflate
  uint32_t crc32 = 0;
  uint64_t packed_bytes = 0;
  uint64_t bytes = 0;
  uint64_t header_offset = 0;
};

class ZipReader {
 public:
  using Sink = std::function<Status(std::span<const std::byte>)>;

  // Borrows `source`. Errors: kCorruptData with the place, kUnsupported, kTooLarge.
  static Result<ZipReader> Open(const ByteSource& source);

  const std::vector<ZipMember>& members() const { return members_; }
  // The one member whose path, or last component of it, matches `pattern` ('*' and '?' as in a shell).
  // kCorruptData when there is none or more than one.
  Result<const ZipMember*> FindOne(const std::string& pattern) const;
  // Hands the member's bytes to `sink`, never more than ZipMember::bytes of them, and checks length and CRC.
  Status Extract(const ZipMember& member, const Sink& sink) const;

 private:
  explicit ZipReader(const ByteSource& source) : source_(&source) {}
  Result<uint64_t> DataOffset(const ZipMember& member) const;
  Status Inflate(const ZipMember& member, uint64_t offset, const Sink& checked) const;

  const ByteSource* source_;
  std::vector<ZipMember> members_;
};

}  // namespace headrace
