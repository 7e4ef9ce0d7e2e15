#include "simulate/traffic.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace headrace {
namespace {

constexpr int32_t kDrawnBlockTokens = 64;
// An exponential draw beyond this many times the mean is as rare as one in e^20.
constexpr double kLongestOverMean = 20;

int64_t DrawLength(int64_t mean, Random* random) {
  const double draw = std::min(-std::log(1 - random->Uniform()), kLongestOverMean);
  return std::max<int64_t>(1, static_cast<int64_t>(draw * static_cast<double>(mean)));
}

}  // namespace

void ScaleArrivals(double speed, std::vector<RecordedRequest>* requests) {
  for (RecordedRequest& r : *requests)
    r.arrival_us = static_cast<int64_t>(std::min(static_cast<double>(r.arrival_us) / speed, 0x1p62));
}

void SpreadArrivals(uint64_t seed, std::vector<RecordedRequest>* requests) {
  Random random(seed);
  std::vector<int64_t> moments;
  for (size_t begin = 0, end; begin < requests->size(); begin = end) {
    const int64_t stamp = (*requests)[begin].arrival_us;
    for (end = begin + 1; end < requests->size() && (*requests)[end].arrival_us == stamp; ++end) {
    }
    if (end == requests->size()) return;  // nothing says how long the last group lasts
    const auto gap = static_cast<double>((*requests)[end].arrival_us - stamp);
    moments.clear();
    for (size_t i = begin; i < end; ++i) moments.push_back(stamp + static_cast<int64_t>(random.Uniform() * gap));
    std::ranges::sort(moments);
    for (size_t i = begin; i < end; ++i) (*requests)[i].arrival_us = moments[i - begin];
  }
}

Result<std::vector<RecordedRequest>> DrawTraffic(const SyntheticTraffic& traffic) {
  HR_ASSIGN_OR_RETURN(Arrivals arrivals, Arrivals::Make(traffic.arrivals));
  Random random(traffic.seed);
  std::vector<RecordedRequest> requests;
  for (size_t i = 0; i < traffic.requests; ++i) {
    RecordedRequest r;
    r.arrival_us = arrivals.Next() / kNsPerUs;
    r.id = i + 1;
    r.tenant = 1 + random.Below(static_cast<uint64_t>(std::max(traffic.tenants, 1)));
    r.prompt_tokens = DrawLength(traffic.prompt_tokens, &random);
    r.output_tokens = DrawLength(traffic.output_tokens, &random);
    r.block_tokens = kDrawnBlockTokens;
    if (random.Uniform() < traffic.shared_share) {
      const uint64_t prefix = random.Below(kSyntheticPrefixes);
      const auto blocks = random.Below(static_cast<uint64_t>(r.prompt_tokens / kDrawnBlockTokens) + 1);
      for (uint64_t b = 0; b < blocks; ++b) r.blocks.push_back({prefix + 1, b});
    }
    requests.push_back(std::move(r));
  }
  return requests;
}

void PromptTokens(const RecordedRequest& request, int32_t vocab_size, std::vector<int32_t>* out) {
  out->resize(static_cast<size_t>(request.prompt_tokens));
  const auto block_tokens = static_cast<size_t>(request.block_tokens);
  const auto vocabulary = static_cast<uint64_t>(vocab_size);
  for (size_t begin = 0, block = 0; begin < out->size(); begin += block_tokens, ++block) {
    const uint64_t name = block < request.blocks.size()
                              ? KeyedRandom(request.blocks[block].high, request.blocks[block].low)
                              : KeyedRandom(~request.id, block);
    const size_t end = std::min(begin + block_tokens, out->size());
    uint64_t mixed = name;
    for (size_t t = begin; t < end; ++t) {
      (*out)[t] = static_cast<int32_t>((mixed & 0xffffffff) * vocabulary >> 32);
      mixed = mixed * 6364136223846793005ull + name;
      mixed = (mixed >> 29) ^ mixed;
    }
  }
}

}  // namespace headrace
