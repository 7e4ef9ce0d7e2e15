#include "base/cpu.h"

#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "base/compute_pool.h"
#include "base/memory_limit.h"

namespace headrace {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Distinct cores among the processors of the affinity mask; SMT siblings count once.
int PhysicalCores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return static_cast<int>(std::thread::hardware_concurrency());
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string siblings =
        ReadLine("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

// Cores that the cgroup's quota allows, rounded down; 0: no quota.
int QuotaCores() {
  std::istringstream line(ReadLine("/sys/fs/cgroup/cpu.max"));
  std::string quota;
  double period = 0;
  if (!(line >> quota >> period) || quota == "max" || period <= 0) return 0;
  return static_cast<int>(std::max(1.0, std::stod(quota) / period));
}

uint64_t MemInfoBytes(const std::string& key) {
  std::ifstream in("/proc/meminfo");
  std::string name, unit;
  uint64_t kib = 0;
  while (in >> name >> kib) {
    std::getline(in, unit);
    if (name == key) return kib * 1024;
  }
  return 0;
}

#if defined(__x86_64__)
bool HasAvxVnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}

// Linux saves a process's tile registers only once it has asked for them: arch_prctl(ARCH_REQ_XCOMP_PERM).
bool AmxInt8Allowed() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

CpuFeatures DetectCpu() {
  CpuFeatures features;
#if defined(__x86_64__)
  __builtin_cpu_init();
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  features.avx_vnni = features.avx2 && HasAvxVnni();
  features.avx512_vnni = features.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                         __builtin_cpu_supports("avx512vnni");
  features.amx_int8 = features.avx512_vnni && AmxInt8Allowed();
#elif defined(__aarch64__)
  features.neon_dot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return features;
}

int UsableCores() {
  const int cores = std::clamp(PhysicalCores(), 1, kComputeThreadsMax);
  const int quota = QuotaCores();
  return quota > 0 ? std::min(cores, quota) : cores;
}

uint64_t AvailableMemoryBytes() {
  std::ifstream in("/proc/self/cgroup");
  const std::string membership{std::istreambuf_iterator<char>(in), {}};
  return std::min({MemInfoBytes("MemAvailable:"), CgroupMemoryLeft("/sys/fs/cgroup", membership), AddressSpaceLeft()});
}

uint64_t ResidentMemoryBytes() {
  std::istringstream line(ReadLine("/proc/self/statm"));
  uint64_t total = 0, resident = 0;
  line >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::string CpuModelName() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace headrace
