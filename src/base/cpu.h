// What the machine has: processors this process may use, instruction sets, memory, cgroup limits.
#pragma once

#include <cstdint>
#include <string>

namespace headrace {

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx_vnni = false;     // AVX-VNNI beside AVX2
  bool avx512_vnni = false;  // AVX-512 F, BW, DQ, VL, VNNI
  bool amx_int8 = false;     // AMX TILE and INT8 beside AVX-512, and the system lets this process use them
  bool neon_dot = false;     // NEON with dot products of bytes (AArch64's asimddp)
};
// Asks the system for AMX's registers where the processor has them (once; they stay allowed).
CpuFeatures DetectCpu();

// Processors to compute with: the least of physical cores, affinity mask, cgroup quota and
// kComputeThreadsMax; at least 1.
int UsableCores();

// Bytes that this process may still take: the least of MemAvailable and what cgroups and ulimit leave.
uint64_t AvailableMemoryBytes();
// Resident bytes of this process.
uint64_t ResidentMemoryBytes();
std::string CpuModelName();

}  // namespace headrace
