// Names that a person may have meant. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// At most three of `names`, nearest first: few edits away, or with a word (between '-' or '_') the same.
std::vector<std::string> NearOptionNames(std::string_view wanted, const std::vector<std::string>& names);
// " Near: --port, --host." or "".
std::string NearSentence(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace headrace
