#include "sampling/row.h"

#include <cmath>
#include <utility>

#include "sampling/float_order.h"

namespace headrace {
namespace {

// Blocks of a sample: 4,096 tokens tell a share of the row's weight to 0.8 % (one standard deviation of a half).
constexpr int32_t kBlocksOfSample = 64;
// Fewer tokens of the sample within the interval tell too little.
constexpr int32_t kSampleMin = 64;
// Rounds that take thresholds from samples; then the interval's floats are halved, which ends after 32.
constexpr int kSampledRounds = 4;

// Blocks that a pass must read for others to help: 32,768 tokens, some 5 us.
constexpr int64_t kSharedBlocksMin = 512;

}  // namespace

RowTeam TeamFor(const RowTeam& team, const float* maxima, float least) {
  if (team.pool == nullptr) return team;
  int64_t blocks = 0;
  for (int32_t b = 0; b < SampleBlocksOf(team.size); ++b) blocks += maxima[b] >= least ? 1 : 0;
  return {team.size, team.kernels, blocks >= kSharedBlocksMin ? team.pool : nullptr};
}

RowCutter::RowCutter(int32_t row_size)
    : list_cutter_(static_cast<size_t>(std::max(kListMax, SampleBlocksOf(row_size)))) {
  const auto segments = static_cast<size_t>(SegmentsOf(row_size));
  for (Tally* tally : {&low_, &high_, &probe_}) tally->counts.resize(segments);
  segment_weights_.resize(segments);
  segment_starts_.resize(segments);
  list_.Resize(kListMax);
}

Cut RowCutter::FindCut(const TokenList& list, Weight weight, double need) {
  return list_cutter_.FindCut(list.values.data(), list.ids.data(), list.size, weight, need);
}

Cut RowCutter::FindCut(const float* values, int32_t count, Weight weight, double need) {
  return list_cutter_.FindCut(values, nullptr, count, weight, need);
}

Cut RowCutter::FindCut(const RowTeam& team, const Row& row, Weight weight, double need, float floor, float ceiling) {
  Weigh(team, row, weight, floor, &low_);
  if (low_.weight < need || low_.count == 0) return {floor, team.size - 1};
  high_.least = ceiling;
  high_.weight = 0;
  high_.count = 0;
  std::ranges::fill(high_.counts, 0);
  for (int round = 0; low_.count - high_.count > kListMax; ++round) {
    const uint32_t from = OrderOf(low_.least), to = OrderOf(high_.least);
    if (to - from <= 1) return CutOfEqual(team, row, weight, need);
    const float middle = FloatAt(from + (to - from) / 2);
    const Thresholds t = round < kSampledRounds ? Guess(team, row, weight, need) : Thresholds{middle, middle};
    Narrow(team, row, weight, need, t.high);
    Narrow(team, row, weight, need, t.low);
  }
  CollectInterval(team, row);
  if (list_.size == 0) return {low_.least, team.size - 1};
  return FindCut(list_, weight, need - high_.weight);
}

void RowCutter::Weigh(const RowTeam& team, const Row& row, Weight weight, float least, Tally* tally) {
  tally->least = least;
  TeamFor(team, row.maxima, least).ForSegments([&](int32_t segment, int32_t first, int32_t count) {
    double sums[kSegmentBlocks];
    const auto s = static_cast<size_t>(segment);
    tally->counts[s] =
        static_cast<int32_t>(team.kernels->sampling->tally(row.values + first, row.maxima + first / kSampleBlock, count,
                                                           least, weight == Weight::kValue ? sums : nullptr));
    segment_weights_[s] = tally->counts[s];
    if (weight == Weight::kOne) return;
    segment_weights_[s] = 0;
    for (int32_t b = 0; b < SampleBlocksOf(count); ++b) segment_weights_[s] += sums[b];
  });
  tally->weight = 0;
  tally->count = 0;
  for (size_t s = 0; s < static_cast<size_t>(SegmentsOf(team.size)); ++s) {
    tally->weight += segment_weights_[s];
    tally->count += tally->counts[s];
  }
}

void RowCutter::Narrow(const RowTeam& team, const Row& row, Weight weight, double need, float threshold) {
  if (!(threshold > low_.least && threshold < high_.least)) return;
  Weigh(team, row, weight, threshold, &probe_);
  std::swap(probe_, probe_.weight >= need ? low_ : high_);
}

void RowCutter::TakeSample(const RowTeam& team, const Row& row) {
  list_.size = 0;
  const int32_t stride = std::max(1, SampleBlocksOf(team.size) / kBlocksOfSample);
  for (int32_t block = 0; block < SampleBlocksOf(team.size); block += stride) {
    if (list_.size + kSampleBlock > kListMax) return;
    const int32_t first = block * kSampleBlock;
    list_.size += static_cast<int32_t>(team.kernels->sampling->collect(
        row.values + first, row.maxima + block, std::min(kSampleBlock, team.size - first), low_.least, high_.least,
        first, list_.values.data() + list_.size, list_.ids.data() + list_.size));
  }
}

RowCutter::Thresholds RowCutter::Guess(const RowTeam& team, const Row& row, Weight weight, double need) {
  TakeSample(team, row);
  if (list_.size < kSampleMin) {
    const uint32_t from = OrderOf(low_.least), to = OrderOf(high_.least);
    const float middle = FloatAt(from + (to - from) / 2);
    return {middle, middle};
  }
  double total = list_.size;
  if (weight == Weight::kValue) {
    total = 0;
    for (int32_t i = 0; i < list_.size; ++i) total += static_cast<double>(list_.values[static_cast<size_t>(i)]);
  }
  // The share of the interval's weight that the cut takes, give or take three standard deviations.
  const double share = (need - high_.weight) / (low_.weight - high_.weight);
  const double margin = 1.5 / std::sqrt(static_cast<double>(list_.size));
  Thresholds t{low_.least, high_.least};
  if (share + margin < 1) t.low = FindCut(list_, weight, (share + margin) * total).least;
  if (share - margin > 0) t.high = FindCut(list_, weight, (share - margin) * total).least;
  if (t.high <= t.low) t.high = NextAbove(t.low);
  return t;
}

Cut RowCutter::CutOfEqual(const RowTeam& team, const Row& row, Weight weight, double need) const {
  const float value = low_.least;
  const double each = weight == Weight::kOne ? 1.0 : static_cast<double>(value);
  const auto wanted = static_cast<int64_t>(std::ceil((need - high_.weight) / each));
  int64_t left = std::clamp<int64_t>(wanted, 1, low_.count - high_.count);
  for (int32_t s = 0; s < SegmentsOf(team.size); ++s) {
    const int64_t here = low_.counts[static_cast<size_t>(s)] - high_.counts[static_cast<size_t>(s)];
    if (left > here) {
      left -= here;
      continue;
    }
    const int32_t first = s * kSegmentTokens, end = std::min(team.size, first + kSegmentTokens);
    for (int32_t id = first; id < end; ++id) {
      if (row.values[id] == value && --left == 0) return {value, id};
    }
  }
  return {value, team.size - 1};
}

void RowCutter::CollectInterval(const RowTeam& team, const Row& row) {
  list_.size = 0;
  for (size_t s = 0; s < static_cast<size_t>(SegmentsOf(team.size)); ++s) {
    segment_starts_[s] = list_.size;
    list_.size += low_.counts[s] - high_.counts[s];
  }
  TeamFor(team, row.maxima, low_.least).ForSegments([&](int32_t segment, int32_t first, int32_t count) {
    const auto s = static_cast<size_t>(segment), at = static_cast<size_t>(segment_starts_[s]);
    if (low_.counts[s] == high_.counts[s]) return;
    team.kernels->sampling->collect(row.values + first, row.maxima + first / kSampleBlock, count, low_.least,
                                    high_.least, first, list_.values.data() + at, list_.ids.data() + at);
  });
}

}  // namespace headrace
