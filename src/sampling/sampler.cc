#include "sampling/sampler.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/exact_math.h"
#include "base/random.h"

namespace headrace {
namespace {

constexpr int32_t kSumBlock = 64;
constexpr float kBanned = -3e38f;

// The sum of up to 64 values by 16 lanes, added pairwise: the same bits whatever the compiler makes of it.
double BlockSum(const float* p, int32_t n) {
  double lanes[16] = {};
  for (int32_t i = 0; i < n; ++i) lanes[i % 16] += static_cast<double>(p[i]);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// Exponent bits of a positive float: buckets of probability that differ by a factor of two.
uint32_t ExponentOf(float p) { return std::bit_cast<uint32_t>(p) >> 23; }

}  // namespace

Sampler::Sampler(int32_t vocab_size, const KernelTable& kernels) : vocab_size_(vocab_size), kernels_(kernels) {
  raw_.resize(static_cast<size_t>(vocab_size));
  probabilities_.resize(static_cast<size_t>(vocab_size));
  block_values_.resize(static_cast<size_t>(vocab_size / kSumBlock + 1));
  candidates_.reserve(static_cast<size_t>(vocab_size));
}

void Sampler::Sample(float* logits, const SampleRequest& request, SampleResult* result) {
  const bool wants_logprobs = request.top_logprobs >= 0;
  double log_sum = 0;
  result->top_count = 0;
  if (wants_logprobs) {
    std::copy_n(logits, vocab_size_, raw_.begin());
    log_sum = LogOfSum(logits);
    TopLogprobs(log_sum, std::min({request.top_logprobs, kTopLogprobsMax, vocab_size_}), result);
  }
  if (request.target >= 0) {
    result->token = request.target;
  } else {
    Adjust(logits, request);
    result->token = request.params.temperature < kGreedyBelow ? Greedy(logits) : Draw(logits, request);
  }
  result->logprob = wants_logprobs
                        ? static_cast<float>(static_cast<double>(raw_[static_cast<size_t>(result->token)]) - log_sum)
                        : 0.0f;
}

double Sampler::LogOfSum(const float* logits) {
  const float max = kernels_.row_max(logits, vocab_size_);
  kernels_.exp_row(logits, vocab_size_, max, 1.0f, probabilities_.data());
  return static_cast<double>(max) + ExactLog(SumOfProbabilities());
}

double Sampler::SumOfProbabilities() const {
  double sum = 0;
  for (int32_t i = 0; i < vocab_size_; i += kSumBlock)
    sum += BlockSum(probabilities_.data() + i, std::min(kSumBlock, vocab_size_ - i));
  return sum;
}

void Sampler::TopLogprobs(double log_sum, int32_t count, SampleResult* result) {
  if (count == 0) return;
  KeepTopK(raw_.data(), static_cast<size_t>(count));
  result->top_count = count;
  for (int32_t i = 0; i < count; ++i) {
    result->top_tokens[i] = candidates_[static_cast<size_t>(i)].token;
    result->top_logprobs[i] =
        static_cast<float>(static_cast<double>(candidates_[static_cast<size_t>(i)].value) - log_sum);
  }
}

void Sampler::Adjust(float* logits, const SampleRequest& request) const {
  const SamplingParams& p = request.params;
  for (const TokenAdjustment& a : request.adjustments) {
    float& x = logits[a.token];
    if (a.seen) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (a.output_count > 0) x = (x - p.presence_penalty) - p.frequency_penalty * static_cast<float>(a.output_count);
    x = a.bias <= kBanBias ? kBanned : x + a.bias;
  }
}

int32_t Sampler::Greedy(const float* logits) const {
  const float max = kernels_.row_max(logits, vocab_size_);
  const auto at = static_cast<int32_t>(std::find(logits, logits + vocab_size_, max) - logits);
  return at < vocab_size_ ? at : 0;  // only a NaN row finds nothing
}

int32_t Sampler::Draw(const float* logits, const SampleRequest& request) {
  const SamplingParams& p = request.params;
  const float uniform = KeyedUniform(p.seed, request.position);
  const float max = kernels_.row_max(logits, vocab_size_);
  if (!(max > kBanned)) return Greedy(logits);
  const float inverse_temperature = 1.0f / p.temperature;
  const bool top_k = p.top_k > 0 && p.top_k < vocab_size_;
  if (top_k) {
    KeepTopK(logits, static_cast<size_t>(p.top_k));
    for (Candidate& c : candidates_) {
      if (c.value == kBanned) {
        c.value = 0;
      } else {
        kernels_.exp_row(&c.value, 1, max, inverse_temperature, &c.value);
      }
    }
    return DrawFromCandidates(p, uniform);
  }
  kernels_.exp_row(logits, vocab_size_, max, inverse_temperature, probabilities_.data());
  for (const TokenAdjustment& a : request.adjustments) {
    if (a.bias <= kBanBias) probabilities_[static_cast<size_t>(a.token)] = 0;
  }
  if (p.top_p >= 1.0f && p.min_p <= 0.0f) return DrawFromAll(uniform);
  KeepNucleusOfAll(p.top_p);
  return DrawFromCandidates(p, uniform);
}

int32_t Sampler::DrawFromAll(float uniform) const {
  double rest = static_cast<double>(uniform) * SumOfProbabilities();
  int32_t chosen = 0;  // the last block with any probability takes what rounding left over
  for (int32_t block = 0; block < vocab_size_; block += kSumBlock) {
    const double sum = BlockSum(probabilities_.data() + block, std::min(kSumBlock, vocab_size_ - block));
    if (sum <= 0) continue;
    chosen = block;
    if (rest < sum) break;
    rest -= sum;
  }
  int32_t last = chosen;
  for (int32_t i = chosen; i < std::min(vocab_size_, chosen + kSumBlock); ++i) {
    const double p = static_cast<double>(probabilities_[static_cast<size_t>(i)]);
    if (p <= 0) continue;
    last = i;
    if (rest < p) break;
    rest -= p;
  }
  return last;
}

// The k largest, largest first, lower id first among equals. The k-th largest block maximum bounds the k-th largest
// value from below, so only blocks that reach it are looked at; the vocabulary is never sorted.
void Sampler::KeepTopK(const float* logits, size_t k) {
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  };
  const auto blocks = static_cast<size_t>((vocab_size_ + kSumBlock - 1) / kSumBlock);
  float threshold = -std::numeric_limits<float>::infinity();
  if (k < blocks) {
    for (size_t b = 0; b < blocks; ++b) {
      const auto first = static_cast<int32_t>(b) * kSumBlock;
      block_values_[b] = kernels_.row_max(logits + first, std::min(kSumBlock, vocab_size_ - first));
    }
    // Candidates serve as the copy that nth_element may shuffle.
    candidates_.clear();
    for (size_t b = 0; b < blocks; ++b) candidates_.push_back({block_values_[b], static_cast<int32_t>(b)});
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(k - 1), candidates_.end(), before);
    threshold = candidates_[k - 1].value;
  }
  candidates_.clear();
  for (size_t b = 0; b < blocks; ++b) {
    if (k < blocks && block_values_[b] < threshold) continue;
    const auto first = static_cast<int32_t>(b) * kSumBlock;
    for (int32_t i = first; i < std::min(vocab_size_, first + kSumBlock); ++i) {
      if (logits[i] >= threshold) candidates_.push_back({logits[i], i});
    }
  }
  const size_t kept = std::min(k, candidates_.size());
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<int64_t>(kept), candidates_.end(), before);
  candidates_.resize(kept);
}

// Candidates: every token in the buckets of probability (factors of two) that together reach top_p, largest first.
void Sampler::KeepNucleusOfAll(float top_p) {
  double buckets[256] = {};
  for (float p : probabilities_) {
    if (p > 0) buckets[ExponentOf(p)] += static_cast<double>(p);
  }
  double total = 0, reached = 0;
  for (int b = 255; b >= 0; --b) total += buckets[b];
  uint32_t lowest = 255;
  for (int b = 255; b >= 0; --b) {
    reached += buckets[b];
    lowest = static_cast<uint32_t>(b);
    if (reached >= static_cast<double>(top_p) * total && reached > 0) break;
  }
  candidates_.clear();
  for (int32_t i = 0; i < vocab_size_; ++i) {
    const float p = probabilities_[static_cast<size_t>(i)];
    if (p > 0 && ExponentOf(p) >= lowest) candidates_.push_back({p, i});
  }
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.token < b.token;
  });
  // What the cut below compares with is the sum over all tokens, not over the candidates.
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || sum < static_cast<double>(top_p) * total)) {
    sum += static_cast<double>(candidates_[kept++].value);
  }
  candidates_.resize(kept);
}

// Candidates hold unnormalised probabilities, largest first. After top-k the nucleus is taken of what top-k left.
int32_t Sampler::DrawFromCandidates(const SamplingParams& params, float uniform) {
  double total = 0;
  for (const Candidate& c : candidates_) total += static_cast<double>(c.value);
  size_t kept = 0;
  double sum = 0;
  const bool nucleus = params.top_k > 0 && params.top_k < vocab_size_ && params.top_p < 1.0f;
  const float least = params.min_p * candidates_[0].value;
  while (kept < candidates_.size()) {
    const float p = candidates_[kept].value;
    if (kept > 0 && (p <= 0 || p < least || (nucleus && sum >= static_cast<double>(params.top_p) * total))) break;
    sum += static_cast<double>(p);
    ++kept;
  }
  double rest = static_cast<double>(uniform) * sum;
  for (size_t i = 0; i < kept; ++i) {
    rest -= static_cast<double>(candidates_[i].value);
    if (rest < 0) return candidates_[i].token;
  }
  return candidates_[kept - 1].token;
}

}  // namespace headrace
