// How far apart two names are, for "did you mean". Pure function, any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace headrace {

// Optimal string alignment: Levenshtein's edits (1966) and two neighbours exchanged as one edit, the slip of a quick
// hand.
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace headrace
