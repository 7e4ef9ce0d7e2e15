// What the system lets this process take beside what the machine has: cgroup limits (v2 and v1, of every level from the
// process's own group to the root) and `ulimit -v`, `ulimit -d`. Pure reads, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headrace {

constexpr uint64_t kNoMemoryLimit = UINT64_MAX;

// Bytes that the cgroups named in `membership` (/proc/self/cgroup) still give out: the least of limit - used, where
// page cache does not count as used, since it gives way. kNoMemoryLimit without a limit. root: "/sys/fs/cgroup".
uint64_t CgroupMemoryLeft(const std::string& root, std::string_view membership);

// Bytes of address space that setrlimit leaves.
uint64_t AddressSpaceLeft();

}  // namespace headrace
