// Checks of JSON text from outside, before and while it is parsed. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// What a parser may be asked to hold at once: open brackets, and a token (a string, a number, the space before it),
// which it copies twice.
struct JsonLimits {
  int depth_max;
  uint64_t token_bytes_max;
};
// Errors: kTooLarge. Does not check that the text is valid.
Status CheckJsonShape(std::string_view text, std::string_view file_name, const JsonLimits& limits);

// Calls `visit` for each "tensor": "file" of the weight_map in a model.safetensors.index.json, in order, and stops at
// its first error. Memory: that of the longest string.
using IndexVisitor = std::function<Status(const std::string& tensor, const std::string& file)>;
Status VisitWeightMap(std::string_view text, std::string_view file_name, const IndexVisitor& visit);

// A file name as an index may give it: no folder, no parent, no NUL, ends with .safetensors.
// Errors: kInvalidArgument; kUnsupported for pickled weights.
Status CheckShardName(std::string_view shard, std::string_view index_name);

}  // namespace headrace
