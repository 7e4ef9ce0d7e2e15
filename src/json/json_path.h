// Names of places in a JSON value, in the form that OpenAI's `param` uses: temperature, messages[2].content.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headrace {

// A path grows to about this many bytes; what lies deeper is not named.
constexpr size_t kJsonPathBytesMax = 256;
// A longer key is cut.
constexpr size_t kJsonPathKeyBytesMax = 64;

// path + ".key" or "key" at the top. Control characters of a key become '?'.
std::string JoinJsonPath(std::string path, std::string_view key);
// path + "[index]".
std::string JoinJsonPath(std::string path, size_t index);

}  // namespace headrace
