// What this machine can do at most: bytes read a second and 8-bit operations a second, with all threads. On a shared
// machine both change from second to second: measure them between the things they are compared with, and take medians.
// One caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/compute_pool.h"
#include "base/huge_buffer.h"
#include "base/result.h"
#include "kernels/probe.h"

namespace headrace {

// Of the largest cache that the system tells of; 0: unknown.
uint64_t LargestCacheBytes();

class MachineProbe {
 public:
  // The probe of the kernels of that name (KernelTable). buffer_bytes 0: a buffer larger than the last-level cache, or
  // half of the free memory where that is less.
  static Result<std::unique_ptr<MachineProbe>> Open(int threads, std::string_view kernels, uint64_t buffer_bytes,
                                                    const Clock& clock);

  uint64_t buffer_bytes() const { return buffer_.bytes(); }
  const char* dots_name() const { return kernels_.dots_name; }
  const char* tile_dots_name() const { return kernels_.tile_dots_name; }
  bool has_tiles() const { return kernels_.tile_dots != nullptr; }

  // GB/s of reading the first `bytes` of the buffer again and again; all of it when that is more.
  double ReadRate(uint64_t bytes);
  // 10^9 operations a second; a multiplication and its addition are two.
  double DotRate() { return RateOf(kernels_.dots); }
  double TileDotRate() { return RateOf(kernels_.tile_dots); }

 private:
  using Dots = int64_t (*)(int64_t rounds, int32_t* sink);
  MachineProbe(int threads, const ProbeKernels& kernels, const Clock& clock)
      : pool_(threads), kernels_(kernels), clock_(clock) {}
  double RateOf(Dots dots);

  ComputePool pool_;
  const ProbeKernels kernels_;
  const Clock& clock_;
  HugeBuffer buffer_;
};

}  // namespace headrace
