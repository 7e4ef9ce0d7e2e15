// --api-key KEY of other servers: the same as a key file with this one key.
#pragma once

#include <string>

#include "base/result.h"

namespace headrace {

// The path of a key file that lives in this process's memory only and holds the key's SHA-256.
Result<std::string> KeyFileInMemory(const std::string& key);

}  // namespace headrace
