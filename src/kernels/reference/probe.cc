#include "kernels/probe.h"

namespace headrace {
namespace {

uint64_t Read(const void* data, int64_t bytes) {
  const auto* words = static_cast<const uint64_t*>(data);
  uint64_t sums[4] = {};
  for (int64_t i = 0; i < bytes / 8; i += 4) {
    for (int64_t j = 0; j < 4; ++j) sums[j] ^= words[i + j];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3];
}

int64_t Dots(int64_t rounds, int32_t* sink) {
  constexpr int kLanes = 64;
  int8_t a[kLanes], b[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    a[i] = static_cast<int8_t>(i + static_cast<int>(rounds & 1));
    b[i] = static_cast<int8_t>(3 * i + static_cast<int>(rounds & 2));
  }
  uint32_t sum = 0;
  for (int64_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < kLanes; ++i) sum += static_cast<uint32_t>(int32_t{a[i]} * b[i]);
    a[r % kLanes] ^= 1;
  }
  *sink = static_cast<int32_t>(sum);
  return 2 * kLanes * rounds;
}

}  // namespace

const ProbeKernels kReferenceProbe{Read, Dots, "scalar"};

}  // namespace headrace
