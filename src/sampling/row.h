// One row of a value for each token, and what the sampler asks of it: passes in segments, by one thread or by all
// workers of a pool, and the cut of a whole row. Every sum is taken by segment, and segments are added in order: the
// bits are the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/compute_pool.h"
#include "kernels/kernel_table.h"
#include "sampling/token_list.h"

namespace headrace {

// Tokens of one work unit: 16 KiB of values, 0.5 to 1.5 us.
constexpr int32_t kSegmentTokens = 4096;
constexpr int32_t kSegmentBlocks = kSegmentTokens / kSampleBlock;
// Tokens that are taken out of a row at once to be looked at one by one; more are narrowed down first.
constexpr int32_t kListMax = 16384;

constexpr int32_t SegmentsOf(int32_t tokens) { return (tokens + kSegmentTokens - 1) / kSegmentTokens; }
constexpr int32_t SampleBlocksOf(int32_t tokens) { return (tokens + kSampleBlock - 1) / kSampleBlock; }

// Who does the passes over rows of `size` values. Borrows; cheap to copy.
struct RowTeam {
  int32_t size = 0;
  const KernelTable* kernels = nullptr;
  ComputePool* pool = nullptr;  // null: the caller alone

  // fn(segment, first token, tokens), each segment once.
  template <typename Fn>
  void ForSegments(Fn fn) const {
    const auto one = [&](int64_t s) {
      const auto first = static_cast<int32_t>(s) * kSegmentTokens;
      fn(static_cast<int32_t>(s), first, std::min(kSegmentTokens, size - first));
    };
    if (pool == nullptr) {
      for (int32_t s = 0; s < SegmentsOf(size); ++s) one(s);
    } else {
      pool->Run([&](int worker) { pool->For(worker, SegmentsOf(size), one); });
    }
  }
};

// A row and a bound of the largest value of each of its blocks.
struct Row {
  const float* values = nullptr;
  const float* maxima = nullptr;
};

// For a pass over the blocks that reach `least`: the caller alone where they are so few that barriers would cost more.
RowTeam TeamFor(const RowTeam& team, const float* maxima, float least);

// Finds cuts of rows without sorting them: the interval of values in which the cut lies is narrowed by passes that
// weigh what is above a threshold, with thresholds taken from a sample of the blocks, until few enough tokens are left
// for a list. One at a time.
class RowCutter {
 public:
  explicit RowCutter(int32_t row_size);

  // The shortest prefix of the tokens that are at least `floor` which weighs at least `need`; all of them if none does.
  // REQUIRES: all values below `ceiling`.
  Cut FindCut(const RowTeam& team, const Row& row, Weight weight, double need, float floor, float ceiling);
  // The same for a list, or for any values in order of id.
  Cut FindCut(const TokenList& list, Weight weight, double need);
  Cut FindCut(const float* values, int32_t count, Weight weight, double need);

 private:
  // What is at least `least`.
  struct Tally {
    float least = 0;
    double weight = 0;
    int64_t count = 0;
    std::vector<int32_t> counts;  // by segment
  };
  void Weigh(const RowTeam& team, const Row& row, Weight weight, float least, Tally* tally);
  // Two thresholds between which the cut lies, most likely; both are within [low, high].
  struct Thresholds {
    float low, high;
  };
  Thresholds Guess(const RowTeam& team, const Row& row, Weight weight, double need);
  void TakeSample(const RowTeam& team, const Row& row);
  // Moves one end of the interval to `threshold` if that is inside.
  void Narrow(const RowTeam& team, const Row& row, Weight weight, double need, float threshold);
  // All tokens of the interval have the same value: only the id is to be found.
  Cut CutOfEqual(const RowTeam& team, const Row& row, Weight weight, double need) const;
  void CollectInterval(const RowTeam& team, const Row& row);

  Tally low_, high_, probe_;  // the interval [low_.least, high_.least) and what lies above each end
  std::vector<double> segment_weights_;
  std::vector<int32_t> segment_starts_;
  TokenList list_;
  ListCutter list_cutter_;
};

}  // namespace headrace
