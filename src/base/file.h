// Files by bounded reads. A path never reaches an error text that leaves the process: messages carry the file's name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// A random-access source of bytes with a known size. Reads are thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset` or fails; never reads past the end.
  virtual Status Read(uint64_t offset, std::span<std::byte> out) const = 0;
  // For messages: the file's name without its folder.
  virtual std::string name() const = 0;
};

Result<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);
// Borrows `bytes`, for tests and fuzzing.
std::unique_ptr<ByteSource> SourceFromMemory(std::span<const std::byte> bytes, std::string name);

// The whole file, refused above max_bytes.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);
// Writes beside the target, syncs and renames: the target is either old or new.
Status WriteFileAtomically(const std::string& path, std::string_view content);

}  // namespace headrace
