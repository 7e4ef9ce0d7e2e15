// Passes of the sampler over rows of logits or probabilities, in blocks of kSampleBlock tokens (the last one may be
// shorter). A block's sum is of doubles by 16 lanes (lane = i % 16), added pairwise by the tree of canonical.h.
// `maxima` has a bound of each block's largest value: blocks below what is looked for are not read.
//
// ISA files include this header: plain structs only, no std types.
#pragma once

#include <cstdint>

namespace headrace {

constexpr int kSampleBlock = 64;

struct SamplingKernels {
  // The largest of each block; a NaN counts as -infinity.
  void (*block_max)(const float* x, int64_t n, float* maxima);
  // out = x >= least ? exp((x - max) * inverse_temperature) : 0, with the exp of canonical.h, and each block's sum. A
  // NaN gives 0.
  void (*exp_blocks)(const float* x, int64_t n, float max, float inverse_temperature, float least, float* out,
                     double* sums);
  // How many are at least `least`; with `sums`, also the sum of those of each block.
  int64_t (*tally)(const float* v, const float* maxima, int64_t n, float least, double* sums);
  // Writes those in [low, high) and their ids (first_id is v[0]'s) in order, nothing behind them; gives their number.
  int64_t (*collect)(const float* v, const float* maxima, int64_t n, float low, float high, int32_t first_id,
                     float* values, int32_t* ids);
};

extern const SamplingKernels kReferenceSampling;
#if defined(__x86_64__)
extern const SamplingKernels kAvx2Sampling;
extern const SamplingKernels kAvx512Sampling;
#elif defined(__aarch64__)
extern const SamplingKernels kNeonSampling;
#endif

}  // namespace headrace
