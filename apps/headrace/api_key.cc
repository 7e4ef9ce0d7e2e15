#include "api_key.h"

#include <sys/mman.h>
#include <unistd.h>

#include "catalog/sha256.h"

namespace headrace {

Result<std::string> KeyFileInMemory(const std::string& key) {
  if (key.empty()) return Fail(ErrorCode::kInvalidArgument, "--api-key is empty", "api-key");
  const std::string text = "[[keys]]\nname = \"command-line\"\nsha256 = \"" + Sha256Hex(key) + "\"\n";
  // Stays open until the process ends: the server may read it again.
  const int fd = memfd_create("headrace-api-key", MFD_CLOEXEC);
  if (fd < 0 || write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Fail(ErrorCode::kIo, "no memory for the key; use --api-key-file", "api-key");
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace headrace
