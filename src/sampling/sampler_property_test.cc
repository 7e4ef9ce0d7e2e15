// Goal: over random rows and settings the sampler draws what a slow reference allows, with the reference's frequencies;
// the same token on every instruction set and for every number of threads; a token of the vocabulary and a
// log-probability that is a number whatever the row holds.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "base/count_allocations.h"
#include "base/random.h"
#include "sampling/float_order.h"
#include "sampling/sampler.h"
#include "sampling/sampler_reference.h"

namespace headrace {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

enum class Shape { kPeaked, kFlat, kEqual, kFewValues, kHoles, kSteps };
constexpr Shape kShapes[] = {Shape::kPeaked,    Shape::kFlat,  Shape::kEqual,
                             Shape::kFewValues, Shape::kHoles, Shape::kSteps};

float ValueOf(Shape shape, Random& random, size_t at) {
  const double u = random.Uniform();
  switch (shape) {
    case Shape::kPeaked:  // a few likely tokens over a long tail, as a model's rows
      return static_cast<float>(-std::log(u + 1e-9) * 1.7 - 12 + random.Uniform() * 4);
    case Shape::kFlat:
      return static_cast<float>(u * 0.1);
    case Shape::kEqual:
      return -1.25f;
    case Shape::kFewValues:
      return static_cast<float>(random.Below(5)) - 2.0f;
    case Shape::kHoles:
      return u < 0.7 ? -kInfinity : u < 0.72 ? -0.0f : u < 0.74 ? 0.0f : static_cast<float>(u * 20);
    case Shape::kSteps:
      return static_cast<float>(static_cast<double>(at / 100) * 0.01);
  }
  return 0;
}

std::vector<float> RowOf(Shape shape, uint64_t seed, size_t n) {
  Random random(seed);
  std::vector<float> row(n);
  for (size_t i = 0; i < n; ++i) row[i] = ValueOf(shape, random, i);
  return row;
}

SamplingParams RandomParams(Random& random, size_t n) {
  const auto pick = [&](std::initializer_list<double> values) { return values.begin()[random.Below(values.size())]; };
  SamplingParams p;
  p.temperature = static_cast<float>(pick({0.0, 0.3, 1.0, 2.0, 1e6}));
  p.top_p = static_cast<float>(pick({1, 1, 0.99, 0.9, 0.5, 0.01, 0}));
  p.min_p = static_cast<float>(pick({0, 0, 0.05, 0.5, 1}));
  p.top_k =
      static_cast<int32_t>(pick({0, 0, 1, 3, 40, 1000, static_cast<double>(n) * 0.9, static_cast<double>(n) + 5}));
  p.presence_penalty = static_cast<float>(pick({0, 0.5}));
  p.repetition_penalty = static_cast<float>(pick({1, 1.3}));
  p.seed = random.Next();
  return p;
}

std::vector<TokenAdjustment> RandomAdjustments(Random& random, size_t n) {
  std::vector<TokenAdjustment> out;
  for (size_t token = random.Below(7); token < n && out.size() < 200; token += 1 + random.Below(n / 20 + 2)) {
    const uint64_t kind = random.Below(4);
    out.push_back({static_cast<int32_t>(token),
                   kind == 0   ? -100.0f
                   : kind == 1 ? 2.5f
                               : 0.0f,
                   static_cast<int32_t>(random.Below(3)), random.Below(2) == 1});
  }
  return out;
}

// From one token to all, at least one. Words beyond the row's last token are as likely to have bits.
std::vector<uint32_t> RandomMask(Random& random, size_t n) {
  std::vector<uint32_t> mask((n + 31) / 32);
  const uint64_t kind = random.Below(4);
  for (uint32_t& word : mask) {
    const auto bits = static_cast<uint32_t>(random.Next());
    word = kind == 0 ? 0 : kind == 1 ? bits : kind == 2 ? UINT32_MAX : random.Below(3) == 0 ? bits & (bits >> 7) : 0;
  }
  const size_t one = random.Below(n);
  mask[one / 32] |= 1u << (one % 32);
  return mask;
}

SampleResult SampleRow(Sampler& sampler, std::vector<float> row, const SampleRequest& request,
                       ComputePool* pool = nullptr) {
  SampleResult result;
  sampler.Sample(row.data(), request, &result, pool);
  return result;
}

std::string Describe(const SamplingParams& p, size_t n, Shape shape) {
  return "T=" + std::to_string(p.temperature) + " k=" + std::to_string(p.top_k) + " p=" + std::to_string(p.top_p) +
         " min_p=" + std::to_string(p.min_p) + " n=" + std::to_string(n) +
         " shape=" + std::to_string(static_cast<int>(shape));
}

TEST(SamplerPropertyTest, DrawsWhatTheSlowReferenceAllows) {
  Random random(20261130);
  for (const size_t n : {1u, 5u, 64u, 65u, 1000u, 4100u, 30000u}) {
    Sampler sampler(static_cast<int32_t>(n), *UsableKernels().back());
    for (int round = 0; round < (n > 4000 ? 60 : 150); ++round) {
      const Shape shape = kShapes[static_cast<size_t>(round) % std::size(kShapes)];
      const std::vector<float> row = RowOf(shape, random.Next(), n);
      SampleRequest request{.params = RandomParams(random, n), .top_logprobs = round % 3 == 0 ? 5 : -1};
      const auto adjustments = RandomAdjustments(random, n);
      if (round % 2 == 0) request.adjustments = adjustments;
      const auto mask = RandomMask(random, n);
      if (round % 5 < 2) request.allowed = mask;
      const SlowSampler slow(row, request);
      for (request.position = 0; request.position < 4; ++request.position) {
        const SampleResult got = SampleRow(sampler, row, request);
        ASSERT_TRUE(slow.Allows(got.token)) << got.token << ' ' << Describe(request.params, n, shape);
        if (request.top_logprobs < 0) continue;
        const double expected = std::max(slow.LogProbability(got.token), static_cast<double>(kLogprobLeast));
        ASSERT_NEAR(static_cast<double>(got.logprob), expected, 2e-5) << Describe(request.params, n, shape);
      }
    }
  }
}

// The number of kept tokens, from their frequencies: all of them occur, in the right proportion.
TEST(SamplerPropertyTest, FrequenciesAreThoseOfTheKeptTokens) {
  constexpr int kDraws = 20'000;
  const SamplingParams settings[] = {{.temperature = 1.5f, .top_p = 0.8f},
                                     {.top_p = 0.9f, .min_p = 0.05f},
                                     {.temperature = 2.0f, .top_k = 9},
                                     {.temperature = 0.7f, .top_p = 0.7f, .top_k = 12},
                                     {.min_p = 0.3f}};
  for (const Shape shape : {Shape::kFewValues, Shape::kSteps, Shape::kFlat, Shape::kHoles}) {
    const std::vector<float> row = RowOf(shape, 77, 40);
    Sampler sampler(40, ReferenceKernels());
    for (const SamplingParams& params : settings) {
      SampleRequest request{.params = params};
      const std::vector<double> shares = SlowSampler(row, request).Shares();
      std::vector<int> counts(row.size());
      for (request.position = 0; request.position < kDraws; ++request.position)
        ++counts[static_cast<size_t>(SampleRow(sampler, row, request).token)];
      for (size_t t = 0; t < row.size(); ++t) {
        ASSERT_NEAR(counts[t] / static_cast<double>(kDraws), shares[t], 4.5 * std::sqrt(shares[t] / kDraws) + 1e-9)
            << t << ' ' << Describe(params, 40, shape);
      }
    }
  }
}

TEST(SamplerPropertyTest, ThreadsAndInstructionSetsDrawTheSame) {
  Random random(7);
  for (const size_t n : {300u, 20'000u, 70'001u}) {
    Sampler reference(static_cast<int32_t>(n), ReferenceKernels());
    std::vector<std::unique_ptr<Sampler>> samplers;
    for (const KernelTable* table : UsableKernels())
      samplers.push_back(std::make_unique<Sampler>(static_cast<int32_t>(n), *table));
    ComputePool two(2), three(3);
    for (int round = 0; round < 60; ++round) {
      const Shape shape = kShapes[static_cast<size_t>(round) % std::size(kShapes)];
      const std::vector<float> row = RowOf(shape, random.Next(), n);
      SampleRequest request{.params = RandomParams(random, n), .top_logprobs = round % 4 == 0 ? 20 : -1};
      const auto adjustments = RandomAdjustments(random, n);
      request.adjustments = adjustments;
      const auto mask = RandomMask(random, n);
      if (round % 2 == 1) request.allowed = mask;
      request.position = static_cast<uint64_t>(round);
      const SampleResult truth = SampleRow(reference, row, request);
      for (auto& sampler : samplers) {
        for (ComputePool* pool : {static_cast<ComputePool*>(nullptr), &two, &three}) {
          const SampleResult got = SampleRow(*sampler, row, request, pool);
          ASSERT_EQ(got.token, truth.token) << Describe(request.params, n, shape);
          ASSERT_EQ(got.logprob, truth.logprob);
          ASSERT_EQ(got.top_count, truth.top_count);
          for (int i = 0; i < got.top_count; ++i) {
            ASSERT_EQ(got.top_tokens[i], truth.top_tokens[i]);
            ASSERT_EQ(got.top_logprobs[i], truth.top_logprobs[i]);
          }
        }
      }
    }
  }
}

// Rows larger than what one list takes: thresholds from samples, halving, and ties by the ten thousand.
// A mask that leaves only tokens without a chance: banned by a bias, impossible, or no numbers.
TEST(SamplerPropertyTest, TheMaskWinsOverABias) {
  std::vector<float> row(100, 1.0f);
  row[70] = kNotANumber;
  row[71] = -kInfinity;
  const std::vector<TokenAdjustment> banned = {{40, -100.0f}, {41, -100.0f}};
  Sampler sampler(100, *UsableKernels().back());
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int32_t token : {40, 41, 70, 71}) {
      std::vector<uint32_t> mask(4);
      mask[static_cast<size_t>(token) / 32] = 1u << (token % 32);
      SampleRequest request{
          .params = {.temperature = temperature}, .adjustments = banned, .allowed = mask, .top_logprobs = 2};
      const SampleResult got = SampleRow(sampler, row, request);
      EXPECT_EQ(got.token, token);
      EXPECT_FALSE(std::isnan(got.logprob));
    }
    std::vector<uint32_t> both(4);
    both[1] = 1u << (40 % 32) | 1u << (50 % 32);
    SampleRequest request{.params = {.temperature = temperature}, .adjustments = banned, .allowed = both};
    EXPECT_EQ(SampleRow(sampler, row, request).token, 50) << "which has a chance";
  }
}

TEST(SamplerPropertyTest, LargeRowsAreCutExactly) {
  constexpr size_t kTokens = 150'000;
  Sampler sampler(kTokens, *UsableKernels().back());
  Random random(99);
  for (const Shape shape : kShapes) {
    const std::vector<float> row = RowOf(shape, 5, kTokens);
    for (const SamplingParams params :
         {SamplingParams{.temperature = 2.0f, .top_p = 0.99f}, SamplingParams{.temperature = 2.0f, .top_p = 0.5f},
          SamplingParams{.temperature = 5.0f, .top_k = 60'000},
          SamplingParams{.temperature = 1e6f, .top_p = 0.9f, .top_k = 100'000},
          SamplingParams{.top_p = 0.9f, .min_p = 0.2f}}) {
      SampleRequest request{.params = params};
      const SlowSampler slow(row, request);
      for (request.position = 0; request.position < 30; ++request.position) {
        const SampleResult got = SampleRow(sampler, row, request);
        ASSERT_TRUE(slow.Allows(got.token)) << got.token << ' ' << Describe(params, kTokens, shape);
      }
    }
  }
}

TEST(SamplerPropertyTest, AllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP();
  constexpr size_t kTokens = 50'000;
  Sampler sampler(kTokens, *UsableKernels().back());
  Random random(4);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> row = RowOf(kShapes[static_cast<size_t>(round) % std::size(kShapes)], random.Next(), kTokens);
    SampleRequest request{.params = RandomParams(random, kTokens), .top_logprobs = round % 2 == 0 ? 20 : -1};
    const auto adjustments = RandomAdjustments(random, kTokens);
    request.adjustments = adjustments;
    const auto mask = RandomMask(random, kTokens);
    if (round % 3 == 0) request.allowed = mask;
    SampleResult result;
    counting = true;
    sampler.Sample(row.data(), request, &result);
    counting = false;
  }
  EXPECT_EQ(allocations, 0u);
}

TEST(SamplerPropertyTest, RowCutsAreThoseOfASort) {
  constexpr int32_t kTokens = 90'000;
  RowCutter cutter(kTokens);
  std::vector<float> maxima(static_cast<size_t>(SampleBlocksOf(kTokens)));
  for (const Shape shape : kShapes) {
    std::vector<float> row = RowOf(shape, 3, kTokens);
    const KernelTable& kernels = *UsableKernels().back();
    kernels.sampling->block_max(row.data(), kTokens, maxima.data());
    std::vector<int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      const float x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    });
    for (const size_t k : {1u, 2u, 777u, 20'000u, 60'000u, 89'999u}) {
      const Cut cut = cutter.FindCut({kTokens, &kernels, nullptr}, {row.data(), maxima.data()}, Weight::kOne,
                                     static_cast<double>(k), -kInfinity, NextAbove(100.0f));
      const int32_t last = order[k - 1];
      ASSERT_EQ(cut.least, row[static_cast<size_t>(last)]) << k << " shape " << static_cast<int>(shape);
      ASSERT_EQ(cut.last, last) << k << " shape " << static_cast<int>(shape);
    }
  }
}

TEST(SamplerPropertyTest, NothingThatIsNoNumberEscapes) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const size_t n = 1 + random.Below(300);
    std::vector<float> row(n);
    const uint64_t kinds = 1 + random.Below(5);
    for (float& x : row) {
      const float values[] = {kNotANumber, -kInfinity, kInfinity, -3.4e38f, 3.4e38f};
      const uint64_t kind = random.Below(kinds + 1);
      x = kind < 5 ? values[(kind + static_cast<uint64_t>(round)) % 5] : 1.0f;
    }
    SampleRequest request{.params = RandomParams(random, n), .top_logprobs = static_cast<int32_t>(random.Below(6))};
    const auto adjustments = RandomAdjustments(random, n);
    request.adjustments = adjustments;
    const bool has_number = std::ranges::any_of(row, [](float x) { return x > -3e38f; });
    Sampler sampler(static_cast<int32_t>(n), *UsableKernels().back());
    const SampleResult got = SampleRow(sampler, row, request);
    ASSERT_GE(got.token, 0);
    ASSERT_LT(got.token, static_cast<int32_t>(n));
    ASSERT_TRUE(std::isfinite(got.logprob));
    for (int i = 0; i < got.top_count; ++i) ASSERT_TRUE(std::isfinite(got.top_logprobs[i]));
    request.adjustments = {};
    if (has_number) {
      ASSERT_FALSE(std::isnan(row[static_cast<size_t>(SampleRow(sampler, row, request).token)]));
    }
  }
}

TEST(SamplerPropertyTest, ParametersThatAreNoNumbersStillDraw) {
  const std::vector<float> row = RowOf(Shape::kPeaked, 8, 500);
  Sampler sampler(500, *UsableKernels().back());
  for (const float odd : {kNotANumber, kInfinity, -kInfinity, -1.0f, 5.0f}) {
    for (int field = 0; field < 3; ++field) {
      SampleRequest request;
      (field == 0 ? request.params.temperature : field == 1 ? request.params.top_p : request.params.min_p) = odd;
      const int32_t token = SampleRow(sampler, row, request).token;
      ASSERT_TRUE(token >= 0 && token < 500) << odd << ' ' << field;
    }
  }
}

}  // namespace
}  // namespace headrace
