// Names that may become files of the models folder. A name comes from a command line, a request, a remote listing or a
// URL, so it is one plain path component or it is refused (field fault O-39). Pure functions: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

// File names have at most 255 bytes on Linux; what we append (".part.source") has to fit too.
constexpr size_t kModelNameBytesMax = 200;

// kInvalidArgument unless `name` is 1 to kModelNameBytesMax of letters, digits, '.', '_', '-', '+', begins with a
// letter or digit, has no ".." and does not end in '.'. The message quotes at most 60 bytes, escaped.
Status CheckModelName(std::string_view name);

// What the name of a model file drops to be a model name: ".gguf" or ".safetensors", then "-00001-of-00003".
std::string_view ModelNameOfFile(std::string_view file_name);

// At most three of `names` that a person may have meant, nearest first: by edits, ignoring case and punctuation, or
// because one contains the other.
std::vector<std::string> NearModelNames(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace headrace
