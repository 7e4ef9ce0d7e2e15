#include "sampling/token_list.h"

#include <algorithm>
#include <bit>

#include "sampling/float_order.h"

namespace headrace {
namespace {

constexpr size_t kSortMax = 64;
constexpr int kBucketBits = 8;

double WeightOf(float value, Weight weight) { return weight == Weight::kOne ? 1.0 : static_cast<double>(value); }

}  // namespace

Cut ListCutter::FindCut(const float* values, const int32_t* ids, int32_t count, Weight weight, double need) {
  tokens_.clear();
  for (int32_t i = 0; i < count; ++i) tokens_.push_back({values[i], ids != nullptr ? ids[i] : i});
  double above = 0;
  uint32_t lowest = 0, highest = 1;
  while (tokens_.size() > kSortMax) {
    lowest = UINT32_MAX, highest = 0;
    for (const Token& t : tokens_) {
      lowest = std::min(lowest, OrderOf(t.value));
      highest = std::max(highest, OrderOf(t.value));
    }
    if (lowest == highest) break;  // equal values are in order of id already
    KeepBucket(lowest, std::max(0, static_cast<int>(std::bit_width(highest - lowest)) - kBucketBits), weight, need,
               &above);
  }
  if (lowest != highest) {
    std::ranges::sort(
        tokens_, [](const Token& a, const Token& b) { return a.value != b.value ? a.value > b.value : a.id < b.id; });
  }
  for (const Token& t : tokens_) {
    above += WeightOf(t.value, weight);
    if (above >= need) return {t.value, t.id};
  }
  return {tokens_.back().value, tokens_.back().id};
}

void ListCutter::KeepBucket(uint32_t lowest, int shift, Weight weight, double need, double* above) {
  double weights[1 << kBucketBits] = {};
  int32_t counts[1 << kBucketBits] = {};
  const auto bucket_of = [&](const Token& t) { return (OrderOf(t.value) - lowest) >> shift; };
  for (const Token& t : tokens_) {
    weights[bucket_of(t)] += WeightOf(t.value, weight);
    ++counts[bucket_of(t)];
  }
  uint32_t bucket = (1u << kBucketBits) - 1;
  for (uint32_t b = bucket + 1; b-- > 0;) {
    if (counts[b] == 0) continue;
    bucket = b;
    // The lowest token is in bucket 0: it takes what rounding left over.
    if (b == 0 || *above + weights[b] >= need) break;
    *above += weights[b];
  }
  std::erase_if(tokens_, [&](const Token& t) { return bucket_of(t) != bucket; });
}

}  // namespace headrace
