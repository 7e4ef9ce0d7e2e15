// Scalar truth of the sampler's passes.
#include "kernels/sampling.h"

#include "kernels/canonical.h"

namespace headrace {
namespace {

int64_t BlockSize(int64_t n, int64_t first) { return n - first < kSampleBlock ? n - first : kSampleBlock; }

// Of those that are at least `least`.
double BlockSum(const float* v, int64_t n, float least) {
  double lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += v[i] >= least ? static_cast<double>(v[i]) : 0.0;
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

void BlockMax(const float* x, int64_t n, float* maxima) {
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    float largest = -__builtin_inff();
    for (int64_t i = first; i < first + BlockSize(n, first); ++i) largest = x[i] > largest ? x[i] : largest;
    maxima[first / kSampleBlock] = largest;
  }
}

void ExpBlocks(const float* x, int64_t n, float max, float inverse_temperature, float least, float* out, double* sums) {
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t size = BlockSize(n, first);
    for (int64_t i = first; i < first + size; ++i)
      out[i] = x[i] >= least ? CanonicalExp((x[i] - max) * inverse_temperature) : 0.0f;
    sums[first / kSampleBlock] = BlockSum(out + first, size, 0.0f);
  }
}

int64_t Tally(const float* v, const float* maxima, int64_t n, float least, double* sums) {
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t block = first / kSampleBlock, size = BlockSize(n, first);
    const bool skip = maxima[block] < least;
    if (sums != nullptr) sums[block] = skip ? 0.0 : BlockSum(v + first, size, least);
    for (int64_t i = first; !skip && i < first + size; ++i) count += v[i] >= least;
  }
  return count;
}

int64_t Collect(const float* v, const float* maxima, int64_t n, float low, float high, int32_t first_id, float* values,
                int32_t* ids) {
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    if (maxima[first / kSampleBlock] < low) continue;
    for (int64_t i = first; i < first + BlockSize(n, first); ++i) {
      if (!(v[i] >= low && v[i] < high)) continue;
      values[count] = v[i];
      ids[count++] = first_id + static_cast<int32_t>(i);
    }
  }
  return count;
}

}  // namespace

const SamplingKernels kReferenceSampling{BlockMax, ExpBlocks, Tally, Collect};

}  // namespace headrace
