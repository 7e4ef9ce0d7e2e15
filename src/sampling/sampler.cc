#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/exact_math.h"
#include "base/random.h"
#include "base/token_mask.h"
#include "sampling/float_order.h"

namespace headrace {
namespace {

constexpr float kBanned = -3e38f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Up to here top-k takes its tokens out of the row; more are cut where they lie.
constexpr int32_t kFewTokensMax = 4096;
static_assert(kFewTokensMax <= kListMax && kTopLogprobsMax <= kFewTokensMax);
// The bound of a block's probabilities by its largest logit: exp is within 2 ulp, so not quite monotonous.
constexpr float kExpSlack = 1.0f + 1e-6f;

// What may be drawn at all: a banned logit, -infinity and NaN may not.
float LeastAllowed() { return NextAbove(kBanned); }

float Logprob(float logit, double log_sum) {
  const double logprob = static_cast<double>(logit) - log_sum;
  if (std::isnan(logprob)) return logit > 0 ? 0.0f : kLogprobLeast;  // of a row with an infinity
  return std::max(static_cast<float>(logprob), kLogprobLeast);
}

}  // namespace

Sampler::Sampler(int32_t vocab_size, const KernelTable& kernels)
    : vocab_size_(vocab_size), kernels_(kernels), team_{vocab_size, &kernels, nullptr}, cutter_(vocab_size) {
  const auto tokens = static_cast<size_t>(vocab_size), blocks = static_cast<size_t>(SampleBlocksOf(vocab_size));
  for (auto* of_tokens : {&raw_, &probabilities_}) of_tokens->resize(tokens);
  for (auto* of_blocks : {&maxima_, &probability_maxima_}) of_blocks->resize(blocks);
  block_sums_.resize(blocks);
  segment_sums_.resize(static_cast<size_t>(SegmentsOf(vocab_size)));
  // Tokens equal to the least kept one come along until they are told from it by id.
  kept_.Resize(static_cast<size_t>(kFewTokensMax + kSegmentTokens));
}

void Sampler::Sample(float* logits, const SampleRequest& request, SampleResult* result, ComputePool* pool) {
  team_.pool = pool;
  maxima_are_found_ = false;
  const bool wants_logprobs = request.top_logprobs >= 0;
  double log_sum = 0;
  result->top_count = 0;
  if (wants_logprobs) {
    FindMaxima(logits);
    log_sum = LogOfSum(logits);
    TopLogprobs(logits, log_sum, std::min({request.top_logprobs, kTopLogprobsMax, vocab_size_}), result);
  }
  if (request.target >= 0) {
    result->token = request.target;
    result->logprob = wants_logprobs ? Logprob(logits[result->token], log_sum) : 0.0f;
    return;
  }
  Adjust(logits, request);
  if (!request.allowed.empty()) ApplyMask(logits, request.allowed);
  if (!maxima_are_found_) FindMaxima(logits);
  result->token = request.params.temperature < kGreedyBelow ? Greedy(logits) : Draw(logits, request);
  // Nothing with a chance is allowed: the mask wins over a bias.
  if (!request.allowed.empty() && !(max_ > kBanned)) result->token = FirstAllowed(request.allowed);
  result->logprob = wants_logprobs ? Logprob(RawLogit(logits, request, result->token), log_sum) : 0.0f;
}

void Sampler::ApplyMask(float* logits, std::span<const uint32_t> allowed) {
  static_assert(kSegmentTokens % 32 == 0);
  team_.ForSegments([&](int32_t, int32_t first, int32_t count) {
    for (int32_t at = first; at < first + count; at += 32) {
      const uint32_t word = allowed[static_cast<size_t>(at) / 32];
      if (word == UINT32_MAX) continue;
      const int32_t end = std::min(at + 32, first + count);
      for (int32_t token = at; token < end; ++token) {
        if ((word >> (token - at) & 1) == 0) logits[token] = kBanned;
      }
    }
  });
  maxima_are_found_ = false;
}

void Sampler::FindMaxima(float* logits) {
  team_.ForSegments([&](int32_t, int32_t first, int32_t count) {
    kernels_.sampling->block_max(logits + first, count, maxima_.data() + first / kSampleBlock);
  });
  maxima_are_found_ = true;
  FindMax(logits);
}

void Sampler::FindMax(float* logits) {
  max_ = kernels_.row_max(maxima_.data(), static_cast<int64_t>(maxima_.size()));
  if (max_ < kInfinity) return;
  for (int32_t i = 0; i < vocab_size_; ++i) logits[i] = std::min(logits[i], std::numeric_limits<float>::max());
  FindMaxima(logits);
}

double Sampler::LogOfSum(const float* logits) {
  if (!(max_ > kBanned)) return static_cast<double>(max_);
  return static_cast<double>(max_) + ExactLog(TakeProbabilities(logits, {LeastAllowed()}, 1.0f));
}

void Sampler::TopLogprobs(const float* logits, double log_sum, int32_t count, SampleResult* result) {
  if (count == 0) return;
  TakeKept(logits, TopK(logits, count));
  result->top_count = std::min(count, kept_.size);
  for (int32_t i = 0; i < result->top_count; ++i) {
    // At most 20: the largest of what is left goes to the front, and ids stay in order.
    const auto begin = kept_.values.begin() + i;
    const auto at = std::max_element(begin, kept_.values.begin() + kept_.size);
    result->top_tokens[i] = kept_.ids[static_cast<size_t>(at - kept_.values.begin())];
    result->top_logprobs[i] = Logprob(*at, log_sum);
    std::rotate(kept_.ids.begin() + i, kept_.ids.begin() + (at - kept_.values.begin()),
                kept_.ids.begin() + (at - kept_.values.begin()) + 1);
    std::rotate(begin, at, at + 1);
  }
}

void Sampler::Adjust(float* logits, const SampleRequest& request) {
  const SamplingParams& p = request.params;
  for (size_t i = 0; i < request.adjustments.size(); ++i) {
    const TokenAdjustment& a = request.adjustments[i];
    float& x = logits[a.token];
    if (i < raw_.size()) raw_[i] = x;
    if (a.seen) x = x > 0 ? x / p.repetition_penalty : x * p.repetition_penalty;
    if (a.output_count > 0) x = (x - p.presence_penalty) - p.frequency_penalty * static_cast<float>(a.output_count);
    x = a.bias <= kBanBias ? kBanned : x + a.bias;
  }
  if (!maxima_are_found_) return;
  for (const TokenAdjustment& a : request.adjustments) {
    const int32_t block = a.token / kSampleBlock, first = block * kSampleBlock;
    kernels_.sampling->block_max(logits + first, std::min(kSampleBlock, vocab_size_ - first), maxima_.data() + block);
  }
  FindMax(logits);
}

float Sampler::RawLogit(const float* logits, const SampleRequest& request, int32_t token) const {
  const auto& adjustments = request.adjustments;
  const auto at = std::ranges::find(adjustments, token, &TokenAdjustment::token);
  const auto i = static_cast<size_t>(at - adjustments.begin());
  return i < adjustments.size() && i < raw_.size() ? raw_[i] : logits[token];
}

int32_t Sampler::Greedy(const float* logits) const {
  const auto block = static_cast<int32_t>(std::ranges::find(maxima_, max_) - maxima_.begin());
  const float* begin = logits + block * kSampleBlock;
  const float* end = logits + std::min(vocab_size_, (block + 1) * kSampleBlock);
  const float* at = std::find(begin, end, max_);
  return at < end ? static_cast<int32_t>(at - logits) : 0;  // a row without a number finds nothing
}

int32_t Sampler::Draw(const float* logits, const SampleRequest& request) {
  const SamplingParams& p = request.params;
  if (!(max_ > kBanned) || !(p.top_p > 0)) return Greedy(logits);
  const float uniform = KeyedUniform(p.seed, request.position);
  const bool few = p.top_k > 0 && p.top_k < vocab_size_ && p.top_k <= kFewTokensMax;
  return few ? DrawFromFew(logits, p, uniform) : DrawFromRow(logits, p, uniform);
}

// The k-th largest block maximum bounds the k-th largest value from below.
Cut Sampler::TopK(const float* logits, int32_t k) {
  const auto blocks = static_cast<int32_t>(maxima_.size());
  float floor = LeastAllowed();
  if (k < blocks) floor = std::max(floor, cutter_.FindCut(maxima_.data(), blocks, Weight::kOne, k).least);
  return cutter_.FindCut(team_, {logits, maxima_.data()}, Weight::kOne, k, floor, NextAbove(max_));
}

void Sampler::TakeKept(const float* logits, const Cut& cut) {
  kept_.size = 0;
  for (int32_t first = 0; first < vocab_size_; first += kSegmentTokens) {
    const int32_t count = std::min(kSegmentTokens, vocab_size_ - first), before = kept_.size;
    const float least = first <= cut.last ? cut.least : NextAbove(cut.least);
    kept_.size += static_cast<int32_t>(
        kernels_.sampling->collect(logits + first, maxima_.data() + first / kSampleBlock, count, least, kInfinity,
                                   first, kept_.values.data() + before, kept_.ids.data() + before));
    if (cut.last < first || cut.last >= first + count - 1) continue;
    int32_t size = before;
    for (auto i = static_cast<size_t>(before); i < static_cast<size_t>(kept_.size); ++i) {
      if (!cut.Keeps(kept_.values[i], kept_.ids[i])) continue;
      kept_.values[static_cast<size_t>(size)] = kept_.values[i];
      kept_.ids[static_cast<size_t>(size++)] = kept_.ids[i];
    }
    kept_.size = size;
  }
}

int32_t Sampler::DrawFromFew(const float* logits, const SamplingParams& params, float uniform) {
  TakeKept(logits, TopK(logits, params.top_k));
  kernels_.exp_row(kept_.values.data(), kept_.size, max_, 1.0f / params.temperature, kept_.values.data());
  const auto size = static_cast<size_t>(kept_.size);
  double total = 0;
  for (size_t i = 0; i < size; ++i) total += static_cast<double>(kept_.values[i]);
  Cut cut{std::numeric_limits<float>::min()};
  if (params.top_p < 1) cut = cutter_.FindCut(kept_, Weight::kValue, static_cast<double>(params.top_p) * total);
  if (params.min_p > cut.least) cut = {std::min(params.min_p, 1.0f)};
  const auto keeps = [&](size_t i) { return cut.Keeps(kept_.values[i], kept_.ids[i]); };
  total = 0;
  for (size_t i = 0; i < size; ++i) total += keeps(i) ? static_cast<double>(kept_.values[i]) : 0.0;
  double rest = static_cast<double>(uniform) * total;
  int32_t token = kept_.ids[0];  // the last one kept takes what rounding left over
  for (size_t i = 0; i < size; ++i) {
    if (!keeps(i)) continue;
    token = kept_.ids[i];
    rest -= static_cast<double>(kept_.values[i]);
    if (rest < 0) break;
  }
  return token;
}

int32_t Sampler::DrawFromRow(const float* logits, const SamplingParams& params, float uniform) {
  Cut cut{LeastAllowed()};
  if (params.top_k > 0 && params.top_k < vocab_size_) cut = TopK(logits, params.top_k);
  const float inverse_temperature = 1.0f / params.temperature;
  double total = TakeProbabilities(logits, cut, inverse_temperature);
  cut = Cut{0.0f};
  if (params.top_p < 1 || params.min_p > 0) {
    kernels_.exp_row(maxima_.data(), static_cast<int64_t>(maxima_.size()), max_, inverse_temperature,
                     probability_maxima_.data());
    for (float& p : probability_maxima_) p *= kExpSlack;
    cut.least = params.min_p > 0 ? std::min(params.min_p, 1.0f) : 0.0f;
    if (params.top_p < 1) {
      // All tokens below 1 - top_p of the average together are less than what the nucleus leaves out.
      const double rest = (1.0 - static_cast<double>(params.top_p)) * total / vocab_size_;
      const float floor = std::max({cut.least, static_cast<float>(0.999 * rest), std::numeric_limits<float>::min()});
      cut = cutter_.FindCut(team_, {probabilities_.data(), probability_maxima_.data()}, Weight::kValue,
                            static_cast<double>(params.top_p) * total, floor, 2.0f);
    }
    total = KeepOnly(cut);
  }
  return TokenAt(static_cast<double>(uniform) * total, cut);
}

double Sampler::SumBlocks(int32_t segment, int32_t tokens) {
  double sum = 0;
  const double* blocks = block_sums_.data() + segment * kSegmentBlocks;
  for (int32_t b = 0; b < SampleBlocksOf(tokens); ++b) sum += blocks[b];
  return segment_sums_[static_cast<size_t>(segment)] = sum;
}

double Sampler::SumSegments() const {
  double sum = 0;
  for (const double segment : segment_sums_) sum += segment;
  return sum;
}

double Sampler::TakeProbabilities(const float* logits, const Cut& cut, float inverse_temperature) {
  const float after = NextAbove(cut.least);
  team_.ForSegments([&](int32_t segment, int32_t first, int32_t count) {
    // Blocks up to the one with the last of the equal tokens, then those behind it.
    const int32_t blocks_end = cut.last >= vocab_size_ - 1 ? vocab_size_ : (cut.last / kSampleBlock + 1) * kSampleBlock;
    const int32_t split = std::clamp(blocks_end - first, 0, count);
    double* sums = block_sums_.data() + first / kSampleBlock;
    float* out = probabilities_.data() + first;
    kernels_.sampling->exp_blocks(logits + first, split, max_, inverse_temperature, cut.least, out, sums);
    kernels_.sampling->exp_blocks(logits + first + split, count - split, max_, inverse_temperature, after, out + split,
                                  sums + split / kSampleBlock);
    if (first <= cut.last && cut.last < first + count - 1) {
      for (int32_t id = cut.last + 1; id < first + split; ++id) {
        if (logits[id] == cut.least) probabilities_[static_cast<size_t>(id)] = 0;
      }
      const int32_t block = cut.last / kSampleBlock, at = block * kSampleBlock;
      kernels_.sampling->tally(probabilities_.data() + at, &kInfinity, std::min(kSampleBlock, vocab_size_ - at), 0.0f,
                               block_sums_.data() + block);
    }
    SumBlocks(segment, count);
  });
  return SumSegments();
}

double Sampler::KeepOnly(const Cut& cut) {
  const float after = NextAbove(cut.least);
  TeamFor(team_, probability_maxima_.data(), cut.least).ForSegments([&](int32_t segment, int32_t first, int32_t count) {
    const int32_t blocks_end = cut.last >= vocab_size_ - 1 ? vocab_size_ : (cut.last / kSampleBlock + 1) * kSampleBlock;
    const int32_t split = std::clamp(blocks_end - first, 0, count);
    const auto tally = [&](int32_t from, int32_t tokens, float least) {
      const int32_t block = (first + from) / kSampleBlock;
      kernels_.sampling->tally(probabilities_.data() + first + from, probability_maxima_.data() + block, tokens, least,
                               block_sums_.data() + block);
    };
    if (first <= cut.last && cut.last < first + count - 1) {
      for (int32_t id = cut.last + 1; id < first + split; ++id) {
        float& p = probabilities_[static_cast<size_t>(id)];
        if (p == cut.least) p = 0;
      }
    }
    tally(0, split, cut.least);
    tally(split, count - split, after);
    SumBlocks(segment, count);
  });
  return SumSegments();
}

// The kept token at `at` of the total; the last one with any probability takes what rounding left over.
int32_t Sampler::TokenAt(double at, const Cut& cut) const {
  const auto find = [&at](const std::vector<double>& sums, size_t begin, size_t end) {
    size_t chosen = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!(sums[i] > 0)) continue;
      chosen = i;
      if (at < sums[i]) break;
      at -= sums[i];
    }
    return chosen;
  };
  const size_t segment = find(segment_sums_, 0, segment_sums_.size());
  const size_t first_block = segment * kSegmentBlocks;
  const size_t block = find(block_sums_, first_block, std::min(block_sums_.size(), first_block + kSegmentBlocks));
  const auto first = static_cast<int32_t>(block) * kSampleBlock;
  int32_t token = first;
  for (int32_t id = first; id < std::min(vocab_size_, first + kSampleBlock); ++id) {
    const float p = probabilities_[static_cast<size_t>(id)];
    if (!(p > 0) || !cut.Keeps(p, id)) continue;
    token = id;
    if (at < static_cast<double>(p)) break;
    at -= static_cast<double>(p);
  }
  return token;
}

}  // namespace headrace
