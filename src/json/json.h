// JSON from outside becomes a tree only within limits that are counted before anything is built, and a tree becomes
// text without an exception. Free functions without state: any thread.
//
// What is refused although some parsers take it: duplicate keys, NaN and Infinity, numbers beyond double, invalid
// UTF-8, lone surrogates, NUL bytes, anything after the value. (RFC 8259, with the strictness of RFC 7493, I-JSON.)
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// Keeps the order of keys: prompts made from tool schemas and metadata must not be reshuffled.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  size_t bytes_max = 16u << 20;
  int depth_max = 64;           // open arrays and objects
  size_t nodes_max = 1u << 20;  // values of every kind; about 64 bytes each in memory
};

// Parses one JSON value without recursion. Errors: kTooLarge above bytes_max, otherwise kInvalidArgument; the message
// names the byte and `field` the place ("messages[2].content"). Neither repeats the text that was read, because
// messages reach logs. nodes_used, when given, receives the number of values even on failure.
Result<Json> ParseJson(std::string_view text, const JsonLimits& limits, size_t* nodes_used = nullptr);

// Compact text. Invalid UTF-8 becomes U+FFFD, a number that is not finite becomes null.
// REQUIRES: depth as ParseJson grants it (writing recurses).
std::string DumpJson(const Json& value);

// Appends `text` as a quoted JSON string; invalid UTF-8 becomes U+FFFD. Allocates only when `out` must grow.
void AppendJsonString(std::string& out, std::string_view text);
void AppendJsonInteger(std::string& out, int64_t value);
// The shortest text that reads back as the same float. REQUIRES: finite.
void AppendJsonFloat(std::string& out, float value);

// The length of the valid UTF-8 sequence at the start of `text`, 0 when there is none.
size_t Utf8SequenceBytes(std::string_view text);
// The longest prefix of at most bytes_max bytes that does not split a character.
std::string_view CutUtf8(std::string_view text, size_t bytes_max);

}  // namespace headrace
