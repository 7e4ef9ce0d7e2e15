// Probes on NEON. Intrinsics and plain structs only.
#include "kernels/probe.h"

#include <arm_neon.h>

#include "kernels/layout.h"

namespace headrace {
namespace {

constexpr int kPrefetchBytes = 4096;
// Four a cycle with a latency of 3 cycles keep 12 in flight on the widest cores; a few more for an uneven schedule.
constexpr int kChains = 16;

uint64_t Read(const void* data, int64_t bytes) {
  const auto* p = static_cast<const uint64_t*>(data);
  uint64x2_t sums[16];
  HR_UNROLL for (int i = 0; i < 16; ++i) sums[i] = vdupq_n_u64(0);
  for (const uint64_t* end = p + bytes / 8; p < end; p += kProbeReadStep / 8) {
    HR_UNROLL for (int i = 0; i < 4; ++i) __builtin_prefetch(p + (kPrefetchBytes + 64 * i) / 8);
    HR_UNROLL for (int i = 0; i < 16; ++i) sums[i] = veorq_u64(sums[i], vld1q_u64(p + 2 * i));
  }
  HR_UNROLL for (int i = 1; i < 16; ++i) sums[0] = veorq_u64(sums[0], sums[i]);
  return vgetq_lane_u64(sums[0], 0) ^ vgetq_lane_u64(sums[0], 1);
}

int64_t Dots(int64_t rounds, int32_t* sink) {
  const int8x16_t a = vdupq_n_s8(static_cast<int8_t>(rounds)), b = vdupq_n_s8(3);
  int32x4_t sums[kChains];
  HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = vdupq_n_s32(i);
  for (int64_t r = 0; r < rounds; ++r) {
    HR_UNROLL for (int i = 0; i < kChains; ++i) sums[i] = vdotq_laneq_s32(sums[i], a, b, 0);
  }
  HR_UNROLL for (int i = 1; i < kChains; ++i) sums[0] = veorq_s32(sums[0], sums[i]);
  *sink = vgetq_lane_s32(sums[0], 0);
  return rounds * kChains * 2 * 16;
}

}  // namespace

const ProbeKernels kNeonProbe{Read, Dots, "sdot by lane"};

}  // namespace headrace
