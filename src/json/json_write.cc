// Writing: the string escaper of the streaming path, numbers, whole trees, and the paths used in messages.
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "json/json.h"
#include "json/json_path.h"

namespace headrace {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// True when one of the eight bytes ends a run of plain text: below 0x20, '"', '\\' or not ASCII. The subtraction sets
// the high bit of a byte that was below the bound; bytes with the high bit set already count as special.
bool HasSpecial(uint64_t eight) {
  constexpr uint64_t kOnes = 0x0101010101010101ull;
  constexpr uint64_t kHigh = 0x8080808080808080ull;
  const uint64_t quote = eight ^ (kOnes * '"');
  const uint64_t backslash = eight ^ (kOnes * '\\');
  return ((eight | (eight - kOnes * 0x20) | (quote - kOnes) | (backslash - kOnes)) & kHigh) != 0;
}

bool IsPlain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x80 && c != '"' && c != '\\';
}

// Bytes from `at` that need no escape and no check.
size_t PlainRun(std::string_view text, size_t at) {
  size_t end = at;
  for (uint64_t eight; end + sizeof(eight) <= text.size(); end += sizeof(eight)) {
    std::memcpy(&eight, text.data() + end, sizeof(eight));
    if (HasSpecial(eight)) break;
  }
  while (end < text.size() && IsPlain(text[end])) ++end;
  return end - at;
}

void AppendEscape(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\b':
      out += "\\b";
      return;
    case '\f':
      out += "\\f";
      return;
    default:
      break;
  }
  constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  out += "\\u00";
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

}  // namespace

size_t Utf8SequenceBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return byte(i) >= low && byte(i) <= high;
  };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  // The second byte's narrower ranges exclude overlong forms, surrogates and what lies above U+10FFFF (Unicode, table
  // 3-7).
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    return follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    return follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::string_view CutUtf8(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    if (const size_t run = PlainRun(text, at); run > 0) {
      out.append(text.data() + at, run);
      at += run;
    } else if (static_cast<unsigned char>(text[at]) < 0x80) {
      AppendEscape(out, text[at]);
      ++at;
    } else if (const size_t bytes = Utf8SequenceBytes(text.substr(at)); bytes > 0) {
      out.append(text.data() + at, bytes);
      at += bytes;
    } else {
      out += kReplacement;
      ++at;
    }
  }
  out += '"';
}

void AppendJsonInteger(std::string& out, int64_t value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

void AppendJsonFloat(std::string& out, float value) {
  DCHECK(std::isfinite(value));
  char digits[32];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

std::string DumpJson(const Json& value) {
  try {
    return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (const std::exception&) {  // none is known with `replace`; memory aside, this edge must not leak one
    return "null";
  }
}

std::string JoinJsonPath(std::string path, std::string_view key) {
  if (path.size() > kJsonPathBytesMax) return path;
  if (!path.empty()) path += '.';
  for (const char c : CutUtf8(key, kJsonPathKeyBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    path += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  return path;
}

std::string JoinJsonPath(std::string path, size_t index) {
  if (path.size() > kJsonPathBytesMax) return path;
  path += '[';
  AppendJsonInteger(path, static_cast<int64_t>(index));
  path += ']';
  return path;
}

}  // namespace headrace
