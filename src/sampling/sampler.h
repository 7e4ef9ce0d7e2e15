// From logits to a token. Deterministic: the draw is a function of (seed, position) and the row's own logits, on every
// instruction set; neighbours, threads and batch do not matter.
//
// Order of operations: log-probabilities of the raw logits are taken first (before any adjustment and temperature);
// then repetition penalty (on prompt and output), presence and frequency penalty (on output), logit bias; then
// temperature 0 (or below kGreedyBelow) takes the largest, lowest id first; otherwise temperature, top-k, top-p over
// what top-k left, min-p, and one draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernel_table.h"

namespace headrace {

constexpr int kTopLogprobsMax = 20;
// Temperatures below this are greedy: their scaled gaps leave float range long before a second token matters.
constexpr float kGreedyBelow = 1e-3f;
// A bias of this or below removes the token.
constexpr float kBanBias = -100.0f;

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

// Scratch for one worker; one thread at a time.
class Sampler {
 public:
  Sampler(int32_t vocab_size, const KernelTable& kernels);

  // logits: [vocab_size], overwritten. Allocates nothing.
  void Sample(float* logits, const SampleRequest& request, SampleResult* result);

 private:
  struct Candidate {
    float value;
    int32_t token;
  };
  double LogOfSum(const float* logits);
  void TopLogprobs(double log_sum, int32_t count, SampleResult* result);
  void Adjust(float* logits, const SampleRequest& request) const;
  int32_t Greedy(const float* logits) const;
  int32_t Draw(const float* logits, const SampleRequest& request);
  int32_t DrawFromAll(float uniform) const;
  void KeepTopK(const float* logits, size_t k);
  void KeepNucleusOfAll(float top_p);
  int32_t DrawFromCandidates(const SamplingParams& params, float uniform);
  double SumOfProbabilities() const;

  const int32_t vocab_size_;
  const KernelTable& kernels_;
  std::vector<float> raw_;             // logits before adjustments, kept when log-probabilities are wanted
  std::vector<float> probabilities_;   // unnormalised, [vocab_size]
  std::vector<float> block_values_;    // one per 64 tokens
  std::vector<Candidate> candidates_;  // capacity vocab_size
};

}  // namespace headrace
