// Files by bounded reads. A path never reaches an error text that leaves the process: messages carry the file's name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// What changes when anybody writes to a file, as the system keeps it. Two equal states are the same bytes, if the older
// one was no newer than the clock's grain (kFileStateGrainNs) when it was taken.
struct FileState {
  uint64_t bytes = 0;
  uint64_t inode = 0;
  int64_t modified_ns = 0;  // since 1970, as the next
  int64_t changed_ns = 0;   // the inode's: nobody can set it back

  bool operator==(const FileState&) const = default;
};
// File systems in use stamp to 10 ms or better; FAT to 2 s.
constexpr int64_t kFileStateGrainNs = 2'000'000'000;

// A random-access source of bytes with a known size. Reads are thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual uint64_t size() const = 0;
  // Fills `out` from `offset` or fails; never reads past the end.
  virtual Status Read(uint64_t offset, std::span<std::byte> out) const = 0;
  // For messages: the file's name without its folder.
  virtual std::string name() const = 0;
  // As it is now. Nothing for what is no file.
  virtual std::optional<FileState> State() const { return std::nullopt; }
};

Result<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);
// Borrows `bytes`, for tests and fuzzing.
std::unique_ptr<ByteSource> SourceFromMemory(std::span<const std::byte> bytes, std::string name);

// The whole file, refused above max_bytes.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);
// Writes beside the target, syncs and renames: the target is either old or new.
Status WriteFileAtomically(const std::string& path, std::string_view content);

// Lets this process open as many files and sockets as the system allows it; how many that is.
uint64_t RaiseOpenFilesLimit();

}  // namespace headrace
