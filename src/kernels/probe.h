// Inner loops that show what one processor can do at most, to compare the kernels with: reading memory, and 8-bit dot
// products out of registers. The driver that runs them on all threads is bench/machine_probe.h.
#pragma once

#include <cstdint>

namespace headrace {

struct ProbeKernels {
  // Reads everything at `data`, prefetching as the products do; gives a value that depends on all of it.
  // REQUIRES: 64-byte aligned, bytes a multiple of kProbeReadStep.
  uint64_t (*read)(const void* data, int64_t bytes) = nullptr;
  // `rounds` rounds of dot products; gives the operations done, a multiplication and its addition as two.
  int64_t (*dots)(int64_t rounds, int32_t* sink) = nullptr;
  const char* dots_name = "";
  // The same by tiles; null where there are none.
  int64_t (*tile_dots)(int64_t rounds, int32_t* sink) = nullptr;
  const char* tile_dots_name = "";
};
constexpr int64_t kProbeReadStep = 256;

extern const ProbeKernels kReferenceProbe;
#if defined(__x86_64__)
extern const ProbeKernels kAvx2Probe;
extern const ProbeKernels kAvx512Probe;
int64_t AvxVnniDots(int64_t rounds, int32_t* sink);
int64_t AmxTileDots(int64_t rounds, int32_t* sink);
#elif defined(__aarch64__)
extern const ProbeKernels kNeonProbe;
#endif

}  // namespace headrace
