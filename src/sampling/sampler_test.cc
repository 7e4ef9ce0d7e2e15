// Goal: sampling is what it says: exact top-k, nucleus and min-p against a sorting oracle, frequencies that follow the
// distribution, edge values that are greedy, bans that hold, log-probabilities of the raw distribution, and the same
// token on every instruction set.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "base/random.h"

namespace headrace {
namespace {

std::vector<float> RandomLogits(uint64_t seed, size_t n, float spread = 8.0f) {
  Random random(seed);
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>(random.Uniform() + random.Uniform() + random.Uniform() - 1.5) * spread;
  return out;
}

int32_t SampleOnce(const std::vector<float>& logits, const SampleRequest& request,
                   const KernelTable& kernels = *UsableKernels().back()) {
  Sampler sampler(static_cast<int32_t>(logits.size()), kernels);
  std::vector<float> copy = logits;
  SampleResult result;
  sampler.Sample(copy.data(), request, &result);
  return result.token;
}

// The tokens that may be drawn, by sorting everything.
std::set<int32_t> Allowed(const std::vector<float>& logits, const SamplingParams& p) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < order.size()) order.resize(static_cast<size_t>(p.top_k));
  std::vector<double> prob;
  double total = 0;
  for (int32_t t : order) {
    prob.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(t)]) -
                             static_cast<double>(logits[static_cast<size_t>(order[0])])) /
                            static_cast<double>(p.temperature)));
    total += prob.back();
  }
  std::set<int32_t> out;
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && (sum >= static_cast<double>(p.top_p) * total * (1 + 1e-6) ||
                  prob[i] < static_cast<double>(p.min_p) * (1 - 1e-6)))
      break;
    out.insert(order[i]);
    sum += prob[i];
  }
  return out;
}

TEST(SamplerTest, OnlyAllowedTokensAreDrawnAndAllLikelyOnesAre) {
  const struct {
    int32_t k;
    float p, min_p;
  } cases[] = {{0, 1, 0},     {5, 1, 0},    {40, 0.8f, 0},    {0, 0.5f, 0},
               {0, 0.95f, 0}, {0, 1, 0.2f}, {20, 0.9f, 0.1f}, {1, 1, 0}};
  for (const size_t vocab : {7u, 130u, 5000u}) {
    for (const auto& c : cases) {
      const auto logits = RandomLogits(vocab + static_cast<uint64_t>(c.k), vocab);
      SampleRequest request;
      request.params.temperature = 0.9f;
      request.params.top_k = c.k;
      request.params.top_p = c.p;
      request.params.min_p = c.min_p;
      request.params.seed = 99;
      const auto allowed = Allowed(logits, request.params);
      std::set<int32_t> drawn;
      for (uint64_t i = 0; i < 400; ++i) {
        request.position = i;
        const int32_t token = SampleOnce(logits, request);
        ASSERT_TRUE(allowed.contains(token))
            << "k=" << c.k << " p=" << c.p << " min_p=" << c.min_p << " vocab=" << vocab;
        drawn.insert(token);
      }
      if (allowed.size() <= 5 && vocab == 7u) {
        EXPECT_GE(drawn.size(), std::min<size_t>(2, allowed.size()));
      }
    }
  }
}

TEST(SamplerTest, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f};
  SampleRequest request;
  request.params.seed = 5;
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20'000;
  Sampler sampler(5, ReferenceKernels());
  for (int i = 0; i < kDraws; ++i) {
    std::vector<float> copy = logits;
    SampleResult result;
    request.position = static_cast<uint64_t>(i);
    sampler.Sample(copy.data(), request, &result);
    ++counts[result.token];
  }
  double total = 0;
  for (float x : logits) total += std::exp(static_cast<double>(x));
  for (int32_t t = 0; t < 5; ++t) {
    const double expected = std::exp(static_cast<double>(logits[static_cast<size_t>(t)])) / total;
    EXPECT_NEAR(counts[t] / static_cast<double>(kDraws), expected, 4 * std::sqrt(expected / kDraws)) << t;
  }
}

TEST(SamplerTest, O11EdgeValuesAreGreedyOrOff) {
  const auto logits = RandomLogits(3, 3000);
  SampleRequest greedy;
  greedy.params.temperature = 0;
  const int32_t best = SampleOnce(logits, greedy);
  EXPECT_EQ(logits[static_cast<size_t>(best)], *std::max_element(logits.begin(), logits.end()));
  for (uint64_t position = 0; position < 50; ++position) {
    for (int variant = 0; variant < 5; ++variant) {
      SampleRequest request;
      request.position = position;
      if (variant == 0) request.params.temperature = 1e-4f;
      if (variant == 1) request.params.temperature = 1e-30f;
      if (variant == 2) request.params.top_p = 0;
      if (variant == 3) request.params.min_p = 1;
      if (variant == 4) request.params.top_k = 1;
      ASSERT_EQ(SampleOnce(logits, request), best) << variant;
    }
    SampleRequest off, all;
    off.position = all.position = position;
    all.params.top_k = 3000;
    ASSERT_EQ(SampleOnce(logits, off), SampleOnce(logits, all));
  }
}

TEST(SamplerTest, BansHoldAndPenaltiesMove) {
  std::vector<float> logits = {5, 4, 3, 2};
  SampleRequest request;
  request.params.temperature = 0;
  const TokenAdjustment ban[] = {{0, -100, 0, false}};
  request.adjustments = ban;
  EXPECT_EQ(SampleOnce(logits, request), 1);
  for (uint64_t i = 0; i < 200; ++i) {
    request.params.temperature = 5;
    request.position = i;
    ASSERT_NE(SampleOnce(logits, request), 0);
    request.params.top_k = static_cast<int32_t>(i % 4);
  }
  const TokenAdjustment all[] = {{0, -100, 0, false}, {1, -100, 0, false}, {2, -100, 0, false}, {3, -100, 0, false}};
  request.adjustments = all;
  const int32_t any = SampleOnce(logits, request);
  EXPECT_TRUE(any >= 0 && any < 4);
  const TokenAdjustment repeated[] = {{0, 0, 2, true}};
  request = {};
  request.params.temperature = 0;
  request.params.frequency_penalty = 0.6f;
  request.adjustments = repeated;
  EXPECT_EQ(SampleOnce(logits, request), 1);
  request.params.frequency_penalty = 0.4f;
  EXPECT_EQ(SampleOnce(logits, request), 0);
  request.params.repetition_penalty = 1.3f;
  EXPECT_EQ(SampleOnce(logits, request), 1);
}

TEST(SamplerTest, LogprobsAreOfTheRawDistribution) {
  const auto logits = RandomLogits(17, 2000);
  double total = 0;
  for (float x : logits) total += std::exp(static_cast<double>(x));
  Sampler sampler(2000, *UsableKernels().back());
  SampleRequest request;
  request.params.temperature = 0;
  request.top_logprobs = 20;
  const TokenAdjustment bias[] = {{1234, 50, 0, false}};
  request.adjustments = bias;
  std::vector<float> copy = logits;
  SampleResult result;
  sampler.Sample(copy.data(), request, &result);
  EXPECT_EQ(result.token, 1234);
  EXPECT_NEAR(static_cast<double>(result.logprob), static_cast<double>(logits[1234]) - std::log(total), 1e-5);
  ASSERT_EQ(result.top_count, 20);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(logits[static_cast<size_t>(result.top_tokens[i])], sorted[static_cast<size_t>(i)]);
    EXPECT_NEAR(static_cast<double>(result.top_logprobs[i]),
                static_cast<double>(sorted[static_cast<size_t>(i)]) - std::log(total), 1e-5);
  }
  copy = logits;
  request.target = 77;
  sampler.Sample(copy.data(), request, &result);
  EXPECT_EQ(result.token, 77);
  EXPECT_NEAR(static_cast<double>(result.logprob), static_cast<double>(logits[77]) - std::log(total), 1e-5);
}

TEST(SamplerTest, EveryInstructionSetDrawsTheSameToken) {
  const auto logits = RandomLogits(23, 4097);
  for (uint64_t i = 0; i < 60; ++i) {
    SampleRequest request;
    request.position = i;
    request.params.top_k = i % 3 == 0 ? 50 : 0;
    request.params.top_p = i % 2 == 0 ? 0.9f : 1.0f;
    const int32_t truth = SampleOnce(logits, request, ReferenceKernels());
    for (const KernelTable* table : UsableKernels())
      ASSERT_EQ(SampleOnce(logits, request, *table), truth) << table->name;
  }
}

}  // namespace
}  // namespace headrace
