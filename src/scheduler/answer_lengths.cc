#include "scheduler/answer_lengths.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace headrace {
namespace {

constexpr double kKeep = 0.996;       // of all weights, at each end: the last 250 answers count
constexpr int64_t kFirstGuess = 256;  // tokens, before any answer has ended
constexpr double kGuessWeight = 1, kWeightMin = 0.05;
constexpr int64_t kShortest = 64;  // tokens that are always expected, if they may come: a block

}  // namespace

AnswerLengths::AnswerLengths() {
  const auto b = static_cast<size_t>(BucketOf(kFirstGuess));
  weight_[b] = kGuessWeight;
  tokens_[b] = kGuessWeight * static_cast<double>(kFirstGuess);
  Sum();
}

// 1, 2, 3 alone, then four buckets to a doubling.
int AnswerLengths::BucketOf(int64_t tokens) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(1, tokens));
  const int doublings = std::bit_width(n) - 1;
  const int quarter = doublings < 2 ? 0 : static_cast<int>((n >> (doublings - 2)) & 3);
  return std::min(4 * doublings + quarter, kBuckets - 1);
}

void AnswerLengths::Ended(int64_t tokens) {
  for (double& weight : weight_) weight *= kKeep;
  for (double& sum : tokens_) sum *= kKeep;
  const auto b = static_cast<size_t>(BucketOf(tokens));
  weight_[b] += 1;
  tokens_[b] += static_cast<double>(tokens);
  Sum();
}

void AnswerLengths::Sum() {
  for (size_t b = kBuckets; b-- > 0;) {
    weight_from_[b] = weight_from_[b + 1] + weight_[b];
    tokens_from_[b] = tokens_from_[b + 1] + tokens_[b];
  }
}

int64_t AnswerLengths::Remaining(int64_t generated, int64_t most) const {
  if (most <= 0) return 0;
  const auto longer = static_cast<size_t>(BucketOf(generated)) + 1;
  const double all = weight_from_[longer];
  int64_t expected = generated;
  if (all >= kWeightMin) {
    const auto cap = static_cast<double>(generated + most);
    const auto last = std::max(longer, static_cast<size_t>(BucketOf(generated + most)));
    double sum = tokens_from_[longer];
    if (last < kBuckets) {
      sum -= tokens_from_[last];
      sum += std::min(tokens_[last], cap * weight_[last]) + cap * weight_from_[last + 1];
    }
    expected = std::lround(sum / all) - generated;
  }
  return std::clamp(std::max(expected, kShortest), int64_t{0}, most);
}

}  // namespace headrace
