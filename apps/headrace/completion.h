// Completion scripts, made from the tables of commands and options.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

std::string BashCompletion();
std::string ZshCompletion();
std::string FishCompletion();

// For the three: names that pull knows, separated by blanks; a text inside '...'.
std::string PullableNames();
std::string ShellQuoted(std::string_view text);

}  // namespace headrace
