#include "machine_facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/cpu.h"
#include "base/file.h"
#include "catalog/progress.h"

namespace headrace {
namespace {

// Files of /sys/fs/cgroup have no size that could be read up to.
std::string FirstLine(const char* path) {
  std::string line;
  if (FILE* file = std::fopen(path, "re")) {
    char piece[256];
    if (std::fgets(piece, sizeof piece, file) != nullptr) line = piece;
    std::fclose(file);
  }
  while (line.ends_with('\n')) line.pop_back();
  return line;
}

}  // namespace

std::string PortTrouble(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::strerror(errno);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound = bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const std::string trouble = bound ? "" : std::strerror(errno);
  close(fd);
  return trouble;
}

std::string CgroupLimits() {
  std::string out;
  const std::string memory = FirstLine("/sys/fs/cgroup/memory.max");
  if (!memory.empty() && memory != "max") out += "memory " + FormatBytes(std::strtoull(memory.c_str(), nullptr, 10));
  std::istringstream quota(FirstLine("/sys/fs/cgroup/cpu.max"));
  double used = 0, period = 0;
  if (quota >> used >> period && period > 0)
    out += fmt::format("{}{:.1f} processors", out.empty() ? "" : ", ", used / period);
  return out.empty() ? "none" : out;
}

std::string CpuFeatureNames() {
  const CpuFeatures cpu = DetectCpu();
  std::string names;
  if (cpu.avx2) names += "AVX2 FMA F16C";
  if (cpu.avx_vnni) names += " AVX-VNNI";
  if (cpu.avx512_vnni) names += " AVX-512 (F BW DQ VL VNNI)";
  if (cpu.amx_int8) names += " AMX (TILE INT8)";
  if (cpu.neon_dot) names += "NEON dot products";
  return names.empty() ? "none that the fast kernels use" : names;
}

std::string OpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return "unknown";
  return fmt::format("{} of at most {}", limit.rlim_cur, limit.rlim_max);
}

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (std::istringstream folders(path == nullptr ? "" : path); !folders.eof();) {
    std::string folder;
    std::getline(folders, folder, ':');
    const std::string candidate = folder + "/" + name;
    if (!folder.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

}  // namespace headrace
