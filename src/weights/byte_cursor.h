// Reads a file's header front to back through a small buffer, so that a header of any claimed length costs no memory.
// One thread. Invariant: offset() never passes the end of the source.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"

namespace headrace {

class ByteCursor {
 public:
  // Borrows `source`.
  explicit ByteCursor(const ByteSource& source) : source_(source) {}

  const ByteSource& source() const { return source_; }
  uint64_t offset() const { return offset_; }
  uint64_t remaining() const { return source_.size() - offset_; }

  // What is being read, for messages: "tensor 17 of 272". Both stay until set again.
  void SetPlace(std::string_view kind, uint64_t number, uint64_t count);
  std::string Place() const;
  // "model.gguf: tensor 17 of 272: `what`", with the place as the offending field.
  std::unexpected<Error> Corrupt(ErrorCode code, std::string_view what) const;

  // Fails with kCorruptData when the file ends earlier.
  Status Read(std::span<std::byte> out);
  template <typename T>
  Status ReadNumber(T& value);

 private:
  Status Refill();

  static constexpr size_t kBufferBytes = 64 * 1024;
  const ByteSource& source_;
  uint64_t offset_ = 0;
  std::vector<std::byte> buffer_;
  size_t buffer_next_ = 0;  // buffer_[buffer_next_] is the byte at offset_
  std::string_view place_kind_ = "the header";
  uint64_t place_number_ = 0;
  uint64_t place_count_ = 0;  // 0: no number
};

// GGUF is little-endian; so is every machine we build for.
template <typename T>
Status ByteCursor::ReadNumber(T& value) {
  static_assert(std::endian::native == std::endian::little);
  return Read(std::as_writable_bytes(std::span(&value, 1)));
}

}  // namespace headrace
