// One file by HTTP into the models folder: resumed by range, space checked first, verified, renamed when whole.
// Blocks; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "catalog/progress.h"
#include "catalog/pull_ports.h"
#include "net/http_message.h"

namespace headrace {

// Attempts in a row that bring no byte before a download gives up.
constexpr int kFruitlessAttemptsMax = 4;

struct DownloadRequest {
  std::string url;
  std::string target;   // path; its last component has passed CheckModelName
  uint64_t bytes = 0;   // 0: unknown
  std::string sha256;   // "": unknown
  HttpHeaders headers;  // "Authorization"
};

// Gives the SHA-256 of the file at `target`. Errors: kNotFound and kPermissionDenied as the server says, kUnavailable
// when it cannot be reached or answers 5xx, kIo with field "disk" or "cut", kCorruptData with field "size" or "sha256",
// kCancelled. The partial file stays, except after kCorruptData.
Result<std::string> Download(const DownloadRequest& request, const PullPorts& ports, PullProgress& progress);

}  // namespace headrace
