// Goal: joined pieces equal the decoding of the whole, no piece ends inside a character (O-01), and invalid bytes
// become U+FFFD exactly as in Python's bytes.decode("utf-8", "replace").
#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/random.h"

namespace headrace {
namespace {

const std::string kMark = "\xEF\xBF\xBD";

// The rule read literally from the Unicode Standard, section 3.9: replace each maximal subpart. Well-formed sequences
// by their table of byte ranges.
struct WellFormed {
  std::vector<std::pair<uint8_t, uint8_t>> bytes;
};
const std::array<WellFormed, 9> kTable = {{{{{0x00, 0x7F}}},
                                           {{{0xC2, 0xDF}, {0x80, 0xBF}}},
                                           {{{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}}},
                                           {{{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                           {{{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}}},
                                           {{{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                           {{{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                           {{{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}}},
                                           {{{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}}}}};

std::string DecodeWhole(const std::string& bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    size_t longest = 0;
    bool whole = false;
    for (const WellFormed& form : kTable) {
      size_t n = 0;
      while (n < form.bytes.size() && at + n < bytes.size()) {
        const auto byte = static_cast<uint8_t>(bytes[at + n]);
        if (byte < form.bytes[n].first || byte > form.bytes[n].second) break;
        ++n;
      }
      if (n > longest) {
        longest = n;
        whole = n == form.bytes.size();
      }
    }
    out += whole ? bytes.substr(at, longest) : kMark;
    at += longest > 0 ? longest : 1;
  }
  return out;
}

std::string DecodeInPieces(const std::string& bytes, Random& random) {
  StreamDecoder decoder;
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(random.Below(4), bytes.size() - at);
    decoder.Append(std::string_view(bytes).substr(at, n));
    at += n;
    const std::string piece = decoder.TakeComplete();
    EXPECT_EQ(DecodeWhole(piece), piece) << "a piece is not whole characters";
    EXPECT_LE(decoder.pending_bytes(), 3u);
    out += piece;
  }
  return out + decoder.Flush();
}

// Taken from Python: bytes.fromhex(...).decode("utf-8", "replace").
TEST(StreamDecoder, EqualsPythonOnKnownCases) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xF0\x9F\xAB\xA0 ok", "\xF0\x9F\xAB\xA0 ok"},
      {"\xED\xA0\x80", kMark + kMark + kMark},              // a surrogate
      {"\xF4\x90\x80\x80", kMark + kMark + kMark + kMark},  // above U+10FFFF
      {"\xC0\xAF", kMark + kMark},                          // overlong
      {"\xE2\x82", kMark},                                  // cut short
      {"\xE2\x82z", kMark + "z"},
      {"\xF0\x9F\x98\xE2\x82\xAC", kMark + "\xE2\x82\xAC"},
      {"\xFF\xFE\x80", kMark + kMark + kMark},
      {"\xF1\x80\x80\xC3\xA9\xE0\x80", kMark + "\xC3\xA9" + kMark + kMark},
  };
  Random random(1);
  for (const auto& [bytes, text] : cases) {
    EXPECT_EQ(DecodeWhole(bytes), text);
    EXPECT_EQ(DecodeInPieces(bytes, random), text);
  }
}

TEST(StreamDecoder, PiecesJoinToTheWhole) {
  Random random(2);
  const std::string lively("\x00\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC2\xDF\xE0\xE1\xED\xEF\xF0\xF1\xF4\xF5\xFF", 20);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes;
    for (uint64_t n = random.Below(24); n > 0; --n) {
      bytes += random.Below(3) == 0 ? static_cast<char>(random.Below(256)) : lively[random.Below(lively.size())];
    }
    ASSERT_EQ(DecodeInPieces(bytes, random), DecodeWhole(bytes));
  }
}

// O-01: a character that the vocabulary spells with several tokens reaches the client as replacement marks.
TEST(StreamDecoder, O01OneBytePerToken) {
  const std::string text = "🫠🥹龜 ďábel 你好🌍";
  StreamDecoder decoder;
  std::string joined;
  for (char byte : text) {
    decoder.Append({&byte, 1});
    const std::string piece = decoder.TakeComplete();
    EXPECT_FALSE(piece.contains(kMark));
    joined += piece;
  }
  EXPECT_EQ(joined + decoder.Flush(), text);
}

TEST(StreamDecoder, FlushStartsAnew) {
  StreamDecoder decoder;
  decoder.Append("a\xE2");
  EXPECT_EQ(decoder.Flush(), "a" + kMark);
  decoder.Append("\x82\xAC");
  EXPECT_EQ(decoder.Flush(), kMark + kMark);
  EXPECT_EQ(decoder.Flush(), "");
}

}  // namespace
}  // namespace headrace
