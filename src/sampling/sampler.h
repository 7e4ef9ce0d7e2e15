// From logits to a token. Deterministic: the draw is a function of (seed, position) and the row's own logits, on every
// instruction set; neighbours, threads and batch do not matter.
//
// Order of operations: log-probabilities of the raw logits are taken first (before any adjustment and temperature);
// then repetition penalty (on prompt and output), presence and frequency penalty (on output), logit bias, the mask;
// then temperature 0 (or below kGreedyBelow) takes the largest, lowest id first; otherwise temperature, top-k, top-p
// over what top-k left, min-p, and one draw.
//
// Each of top-k, top-p and min-p keeps a prefix of the tokens by value, lowest id first among equals; what a prefix
// weighs decides where it ends, so that nothing is ever sorted but the few tokens around that place. The draw walks the
// kept tokens in order of id.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kernel_table.h"
#include "sampling/row.h"
#include "sampling/token_list.h"

namespace headrace {

constexpr int kTopLogprobsMax = 20;
// Temperatures below this are greedy: their scaled gaps leave float range long before a second token matters.
constexpr float kGreedyBelow = 1e-3f;
// A bias of this or below removes the token.
constexpr float kBanBias = -100.0f;
// Log-probability of a token that cannot be, such as one whose logit is -infinity.
constexpr float kLogprobLeast = -9999.0f;
// Shorter rows are sampled by one worker: 30 us at most, of which barriers would take a good part, and all of it and
// more beside a neighbour that takes a processor away.
constexpr int32_t kSharedRowMin = 16 * kSegmentTokens;

struct SamplingParams {
  float temperature = 1.0f;
  float top_p = 1.0f;
  float min_p = 0.0f;
  int32_t top_k = 0;  // <= 0: off
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;

  bool NeedsHistory() const { return presence_penalty != 0 || frequency_penalty != 0 || repetition_penalty != 1; }
};

// What is known of one token of this row: its bias and its occurrences so far.
struct TokenAdjustment {
  int32_t token = 0;
  float bias = 0;
  int32_t output_count = 0;
  bool seen = false;  // in prompt or output
};

struct SampleRequest {
  SamplingParams params;
  uint64_t position = 0;  // counter of the draw
  std::span<const TokenAdjustment> adjustments;
  // base/token_mask.h: what may be drawn; at least one token, whatever its bias. MaskWords long, or empty: all.
  std::span<const uint32_t> allowed;
  int32_t target = -1;        // >= 0: no draw, report the log-probability of this token
  int32_t top_logprobs = -1;  // < 0: no log-probabilities
};

struct SampleResult {
  int32_t token = 0;
  float logprob = 0;
  int32_t top_count = 0;
  int32_t top_tokens[kTopLogprobsMax];
  float top_logprobs[kTopLogprobsMax];
};

// Scratch for one row at a time; one caller at a time.
class Sampler {
 public:
  Sampler(int32_t vocab_size, const KernelTable& kernels);

  // logits: [vocab_size], overwritten. With a pool, whose worker 0 calls outside of Run, all its workers share the
  // passes over the row; the result is the same to the bit. Allocates nothing.
  //
  // A NaN among the logits is never drawn; the token is always one of the vocabulary and the log-probability a number,
  // kLogprobLeast where the token is impossible.
  void Sample(float* logits, const SampleRequest& request, SampleResult* result, ComputePool* pool = nullptr);

 private:
  void FindMaxima(float* logits);
  // Infinities become the largest float, so that differences are numbers.
  void FindMax(float* logits);
  void Adjust(float* logits, const SampleRequest& request);
  // Bans what the mask does not allow, and finds the maxima of what is left.
  void ApplyMask(float* logits, std::span<const uint32_t> allowed);
  double LogOfSum(const float* logits);
  void TopLogprobs(const float* logits, double log_sum, int32_t count, SampleResult* result);
  float RawLogit(const float* logits, const SampleRequest& request, int32_t token) const;
  int32_t Greedy(const float* logits) const;
  int32_t Draw(const float* logits, const SampleRequest& request);
  // Top-k of a few tokens, and the rest of the way on the list of them.
  int32_t DrawFromFew(const float* logits, const SamplingParams& params, float uniform);
  int32_t DrawFromRow(const float* logits, const SamplingParams& params, float uniform);
  Cut TopK(const float* logits, int32_t k);
  void TakeKept(const float* logits, const Cut& cut);
  // Fills probabilities_, block_sums_ and segment_sums_ with what the cut of the logits keeps; gives the total.
  double TakeProbabilities(const float* logits, const Cut& cut, float inverse_temperature);
  // Takes out of the sums what the cut of the probabilities does not keep; gives the total.
  double KeepOnly(const Cut& cut);
  int32_t TokenAt(double at, const Cut& cut) const;
  double SumBlocks(int32_t segment, int32_t tokens);
  double SumSegments() const;

  const int32_t vocab_size_;
  const KernelTable& kernels_;
  RowTeam team_;
  RowCutter cutter_;
  std::vector<float> maxima_;  // of the logits, by block of kSampleBlock tokens
  float max_ = 0;
  bool maxima_are_found_ = false;     // for the logits as they are
  std::vector<float> raw_;            // logits of the adjusted tokens before that, by adjustment
  std::vector<float> probabilities_;  // unnormalised: the largest logit's is 1
  std::vector<float> probability_maxima_;
  std::vector<double> block_sums_, segment_sums_;
  TokenList kept_;
};

}  // namespace headrace
