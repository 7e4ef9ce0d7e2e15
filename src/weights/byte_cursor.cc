#include "weights/byte_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace headrace {

void ByteCursor::SetPlace(std::string_view kind, uint64_t number, uint64_t count) {
  place_kind_ = kind;
  place_number_ = number;
  place_count_ = count;
}

std::string ByteCursor::Place() const {
  if (place_count_ == 0) return std::string(place_kind_);
  return fmt::format("{} {} of {}", place_kind_, place_number_, place_count_);
}

std::unexpected<Error> ByteCursor::Corrupt(ErrorCode code, std::string_view what) const {
  return Fail(code, fmt::format("{}: {}: {}", source_.name(), Place(), what), Place());
}

Status ByteCursor::Read(std::span<std::byte> out) {
  if (out.size() > remaining()) {
    return Corrupt(ErrorCode::kCorruptData,
                   fmt::format("{} bytes are needed from byte {}, but the file has only {}; is the download complete?",
                               out.size(), offset_, source_.size()));
  }
  while (!out.empty()) {
    if (buffer_next_ == buffer_.size()) HR_RETURN_IF_ERROR(Refill());
    const size_t count = std::min(out.size(), buffer_.size() - buffer_next_);
    std::memcpy(out.data(), buffer_.data() + buffer_next_, count);
    out = out.subspan(count);
    buffer_next_ += count;
    offset_ += count;
  }
  return {};
}

Status ByteCursor::Refill() {
  buffer_.resize(std::min<uint64_t>(kBufferBytes, remaining()));
  buffer_next_ = 0;
  return source_.Read(offset_, buffer_);
}

}  // namespace headrace
