#include "base/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

namespace headrace {
namespace {

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;  // "max" is none
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return Number(line);
}

// Page cache of a group, from its memory.stat.
uint64_t CacheBytes(const std::string& path, bool v1) {
  std::ifstream in(path);
  std::string name;
  uint64_t value = 0, sum = 0;
  while (in >> name >> value) {
    const std::string_view key = v1 && name.starts_with("total_") ? std::string_view(name).substr(6) : name;
    if (v1 != name.starts_with("total_")) continue;
    if (key == "inactive_file" || key == "active_file") sum += value;
  }
  return sum;
}

uint64_t LeftIn(const std::string& folder, bool v1) {
  const auto limit = NumberIn(folder + (v1 ? "/memory.limit_in_bytes" : "/memory.max"));
  const auto used = NumberIn(folder + (v1 ? "/memory.usage_in_bytes" : "/memory.current"));
  // v1 says "no limit" as the largest multiple of a page.
  if (!limit || !used || *limit >= 1ull << 62) return kNoMemoryLimit;
  const uint64_t kept = *used - std::min(*used, CacheBytes(folder + "/memory.stat", v1));
  return *limit - std::min(*limit, kept);
}

// A line of /proc/self/cgroup is "id:controllers:path"; v2 has no controllers.
std::vector<std::string_view> Fields(std::string_view line) {
  std::vector<std::string_view> fields;
  for (int i = 0; i < 2; ++i) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return {};
    fields.push_back(line.substr(0, colon));
    line.remove_prefix(colon + 1);
  }
  fields.push_back(line);
  return fields;
}

bool ListsMemory(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "memory") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

}  // namespace

uint64_t CgroupMemoryLeft(const std::string& root, std::string_view membership) {
  uint64_t left = kNoMemoryLimit;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    const auto fields = Fields(line);
    if (fields.empty()) continue;
    const bool v1 = ListsMemory(fields[1]);
    if (!v1 && !fields[1].empty()) continue;
    const std::string top = v1 ? root + "/memory" : root;
    // In a container the path may be the host's and absent here; the container's own group is then the top.
    for (std::string path(fields[2]);; path.resize(path.rfind('/'))) {
      if (!path.contains("..")) left = std::min(left, LeftIn(top + path, v1));
      if (path.find('/') == std::string::npos) break;
    }
    left = std::min(left, LeftIn(top, v1));
  }
  return left;
}

uint64_t AddressSpaceLeft() {
  std::ifstream in("/proc/self/statm");
  uint64_t pages[6] = {};
  for (uint64_t& value : pages) in >> value;
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto left = [&](auto resource, uint64_t used) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoMemoryLimit;
    return uint64_t{limit.rlim_cur} - std::min<uint64_t>(limit.rlim_cur, used * page_bytes);
  };
  return std::min(left(RLIMIT_AS, pages[0]), left(RLIMIT_DATA, pages[5]));
}

}  // namespace headrace
