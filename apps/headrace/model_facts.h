// What `show` and `doctor` say about a model on disk.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "json/json.h"

namespace headrace {

// Everything that can be read without loading the weights, in the order to print. What cannot be known is left out; a
// model that cannot be served has "not_servable" with the reason. Errors: those of opening the file.
Result<Json> ReadModelFacts(const std::string& path, uint64_t memory_available_bytes);

// The facts as aligned lines for people.
std::string FactsAsText(const Json& facts);

}  // namespace headrace
