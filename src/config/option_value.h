// Texts of flags, environment and file as values of an option's kind. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/option_table.h"

namespace headrace {

constexpr size_t kOptionTextBytesMax = 65'536;
constexpr size_t kOptionTextsMax = 256;

// All kInvalidArgument; the message says what is accepted.
Result<bool> ParseSwitch(std::string_view text);      // true false 1 0 yes no on off
Result<int64_t> ParseInteger(std::string_view text);  // "8192"; a suffix is refused
Result<int64_t> ParseTokens(std::string_view text);   // "8192", "8k" = 8000, "8K" = 8192, "25.6k"; "auto" and "-1" = 0
Result<double> ParseNumber(std::string_view text);    // finite
Result<double> ParseSeconds(std::string_view text);   // "30", "1.5s", "500ms", "5m", "1h"
Result<uint64_t> ParseBytes(std::string_view text);   // "1073741824", "512MB" = 512e6, "2GiB", "2G" = 2GiB

// The choice that a synonym such as "warning" stands for; every other text as it is.
std::string_view ChoiceOf(const OptionSpec& spec, std::string_view text);

// Checks texts against the option's kind, range and choices. The message begins with `who`, such as "--port" or
// "HEADRACE_PORT"; Error::field is the option's name.
Status CheckOptionValue(const OptionSpec& spec, const std::vector<std::string>& texts, const std::string& who);

}  // namespace headrace
