#include "trace/line_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "trace/limits.h"

namespace headrace {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

Result<std::optional<std::string_view>> LineReader::Next() {
  for (size_t searched = 0;;) {
    const size_t end = buffer_.find('\n', begin_ + searched);
    const bool last = end == std::string::npos && read_ == source_.size();
    if (end == std::string::npos && !last) {
      searched = buffer_.size() - begin_;
      if (searched > kTraceLineBytesMax) {
        ++number_;
        return Fail(
            At(ErrorCode::kTooLarge, fmt::format("longer than {} bytes; this is no trace", kTraceLineBytesMax)));
      }
      HR_RETURN_IF_ERROR(Fill());
      continue;
    }
    if (last && begin_ == buffer_.size()) return std::nullopt;
    std::string_view line(buffer_.data() + begin_, (last ? buffer_.size() : end) - begin_);
    begin_ += line.size() + (last ? 0 : 1);
    searched = 0;
    ++number_;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) return line;
  }
}

Status LineReader::Fill() {
  buffer_.erase(0, std::exchange(begin_, 0));
  const size_t bytes = static_cast<size_t>(std::min<uint64_t>(kPieceBytes, source_.size() - read_));
  const size_t old = buffer_.size();
  buffer_.resize(old + bytes);
  HR_RETURN_IF_ERROR(source_.Read(read_, std::as_writable_bytes(std::span(buffer_.data() + old, bytes))));
  read_ += bytes;
  return {};
}

Error LineReader::At(ErrorCode code, std::string_view what) const {
  return {code, fmt::format("{}, line {}: {}.", source_.name(), number_, what), {}, 0};
}

}  // namespace headrace
