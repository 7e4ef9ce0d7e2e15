// Joins the bytes of tokens into whole characters. The pieces taken, joined, equal the decoding of all bytes at once;
// each maximal invalid stretch becomes one U+FFFD, as in Python's bytes.decode("utf-8", "replace") and section 3.9 of
// the Unicode Standard.
//
// One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

class StreamDecoder {
 public:
  void Append(std::string_view bytes);
  // What is whole so far, at most once; never part of a character.
  std::string TakeComplete();
  // At the end of the text: the rest, with a U+FFFD for a character that never was completed.
  std::string Flush();
  // Bytes of an unfinished character, 0 to 3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  void Accept(uint8_t byte);
  void StartCharacter(uint8_t byte);

  std::string complete_;
  std::string pending_;      // at most 3 bytes
  uint8_t missing_ = 0;      // continuation bytes that the pending character still needs
  uint8_t next_low_ = 0x80;  // the range of its next byte, narrower right after some lead bytes
  uint8_t next_high_ = 0xBF;
};

}  // namespace headrace
