// The sampler's passes on AVX2, equal to the reference to the bit. Intrinsics and plain structs only.
#include "kernels/sampling.h"

#include <immintrin.h>

#include "kernels/avx2/lanes.h"

namespace headrace {
namespace {

constexpr int kVectors = kSampleBlock / 8;

// 16 lanes of doubles, as four quarters.
struct Sum16 {
  __m256d lanes[4] = {_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()};

  // Eight values: of the lower lanes for an even `half`, of the upper ones for an odd one.
  HR_KERNEL_INLINE void Add(int half, __m256 v) {
    const int at = half % 2 * 2;
    lanes[at] = _mm256_add_pd(lanes[at], _mm256_cvtps_pd(_mm256_castps256_ps128(v)));
    lanes[at + 1] = _mm256_add_pd(lanes[at + 1], _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)));
  }
  HR_KERNEL_INLINE double Total() const {
    const __m256d h4 = _mm256_add_pd(_mm256_add_pd(lanes[0], lanes[2]), _mm256_add_pd(lanes[1], lanes[3]));
    const __m128d h2 = _mm_add_pd(_mm256_castpd256_pd128(h4), _mm256_extractf128_pd(h4, 1));
    return _mm_cvtsd_f64(_mm_add_sd(h2, _mm_unpackhi_pd(h2, h2)));
  }
};

// Lanes of vector i that lie within a block of n.
HR_KERNEL_INLINE __m256 Valid(int64_t n, int i) { return _mm256_castsi256_ps(LaneMask(n - 8 * i)); }
HR_KERNEL_INLINE __m256 Load(const float* x, int64_t n, int i) {
  return n >= kSampleBlock ? _mm256_loadu_ps(x + 8 * i) : _mm256_maskload_ps(x + 8 * i, LaneMask(n - 8 * i));
}
HR_KERNEL_INLINE __m256 AtLeast(__m256 v, __m256 low, int64_t n, int i) {
  const __m256 kept = _mm256_cmp_ps(v, low, _CMP_GE_OQ);
  return n >= kSampleBlock ? kept : _mm256_and_ps(kept, Valid(n, i));
}

void BlockMax(const float* x, int64_t n, float* maxima) {
  const __m256 none = _mm256_set1_ps(-__builtin_inff());
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t size = n - first;
    __m256 top = none;
    // max_ps gives its second operand for a NaN.
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      __m256 v = Load(x + first, size, i);
      if (size < kSampleBlock) v = _mm256_blendv_ps(none, v, Valid(size, i));
      top = _mm256_max_ps(v, top);
    }
    maxima[first / kSampleBlock] = Largest(top);
  }
}

void ExpBlocks(const float* x, int64_t n, float max, float inverse_temperature, float least, float* out, double* sums) {
  const __m256 top = _mm256_set1_ps(max), factor = _mm256_set1_ps(inverse_temperature), low = _mm256_set1_ps(least);
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t size = n - first;
    Sum16 sum;
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      const __m256 v = Load(x + first, size, i);
      const __m256 kept = AtLeast(v, low, size, i);
      const __m256 p = _mm256_and_ps(kept, Exp8(_mm256_mul_ps(_mm256_sub_ps(v, top), factor)));
      if (size >= kSampleBlock) {
        _mm256_storeu_ps(out + first + 8 * i, p);
      } else {
        _mm256_maskstore_ps(out + first + 8 * i, LaneMask(size - 8 * i), p);
      }
      sum.Add(i, p);
    }
    sums[first / kSampleBlock] = sum.Total();
  }
}

int64_t Tally(const float* v, const float* maxima, int64_t n, float least, double* sums) {
  const __m256 low = _mm256_set1_ps(least);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    const int64_t block = first / kSampleBlock, size = n - first;
    if (sums != nullptr) sums[block] = 0;
    if (maxima[block] < least) continue;
    Sum16 sum;
    uint64_t kept = 0;
    HR_UNROLL for (int i = 0; i < kVectors; ++i) {
      const __m256 values = Load(v + first, size, i);
      const __m256 mask = AtLeast(values, low, size, i);
      kept = kept << 8 | static_cast<unsigned>(_mm256_movemask_ps(mask));
      sum.Add(i, _mm256_and_ps(mask, values));
    }
    count += __builtin_popcountll(kept);
    if (sums != nullptr) sums[block] = sum.Total();
  }
  return count;
}

int64_t Collect(const float* v, const float* maxima, int64_t n, float low, float high, int32_t first_id, float* values,
                int32_t* ids) {
  const __m256 from = _mm256_set1_ps(low), to = _mm256_set1_ps(high);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += kSampleBlock) {
    if (maxima[first / kSampleBlock] < low) continue;
    const int64_t size = n - first;
    for (int i = 0; i < kVectors; ++i) {
      const __m256 block = Load(v + first, size, i);
      const __m256 kept = _mm256_and_ps(AtLeast(block, from, size, i), _mm256_cmp_ps(block, to, _CMP_LT_OQ));
      for (auto mask = static_cast<unsigned>(_mm256_movemask_ps(kept)); mask != 0; mask &= mask - 1) {
        const int64_t at = first + 8 * i + __builtin_ctz(mask);
        values[count] = v[at];
        ids[count++] = first_id + static_cast<int32_t>(at);
      }
    }
  }
  return count;
}

}  // namespace

const SamplingKernels kAvx2Sampling{BlockMax, ExpBlocks, Tally, Collect};

}  // namespace headrace
