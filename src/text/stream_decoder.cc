#include "text/stream_decoder.h"

#include <utility>

namespace headrace {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
}  // namespace

void StreamDecoder::Append(std::string_view bytes) {
  for (char byte : bytes) Accept(static_cast<uint8_t>(byte));
}

std::string StreamDecoder::TakeComplete() { return std::exchange(complete_, {}); }

std::string StreamDecoder::Flush() {
  if (missing_ > 0) complete_ += kReplacement;
  pending_.clear();
  missing_ = 0;
  return TakeComplete();
}

void StreamDecoder::Accept(uint8_t byte) {
  if (missing_ == 0) return StartCharacter(byte);
  if (byte < next_low_ || byte > next_high_) {
    complete_ += kReplacement;
    pending_.clear();
    missing_ = 0;
    return StartCharacter(byte);
  }
  pending_ += static_cast<char>(byte);
  next_low_ = 0x80;
  next_high_ = 0xBF;
  if (--missing_ == 0) {
    complete_ += pending_;
    pending_.clear();
  }
}

// Table 3-7 of the Unicode Standard: no overlong forms, no surrogates, nothing above U+10FFFF.
void StreamDecoder::StartCharacter(uint8_t byte) {
  if (byte < 0x80) {
    complete_ += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    complete_ += kReplacement;
    return;
  }
  pending_ = static_cast<char>(byte);
  missing_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
  next_low_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
  next_high_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
}

}  // namespace headrace
