// The lines of a text file, read in pieces. Memory: one line and one piece. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace headrace {

class LineReader {
 public:
  // Borrows the source.
  explicit LineReader(const ByteSource& source) : source_(source) {}

  // The next line that is not blank, without its end (LF or CRLF), valid until the next call; nothing at the end.
  // kTooLarge above kTraceLineBytesMax.
  Result<std::optional<std::string_view>> Next();
  // Of the line that Next gave, from 1.
  int64_t number() const { return number_; }
  // "name, line 7: what"
  Error At(ErrorCode code, std::string_view what) const;

 private:
  Status Fill();

  const ByteSource& source_;
  std::string buffer_;
  size_t begin_ = 0;  // of what has not been given
  uint64_t read_ = 0;
  int64_t number_ = 0;
};

}  // namespace headrace
