// How many draft rows each decoding sequence gets: as many as make tokens cheaper. A step of n sequences that takes the
// time t yields n tokens; a draft row that survives with probability p and costs c pays while p / c is more than what
// the step yields by then. So drafts stop by themselves where they are rarely right, and where many sequences make a
// row dear beside the step. One thread; allocates nothing after it is made.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/decode_cost.h"

namespace headrace {

constexpr int32_t kDraftsMax = 15;  // of one sequence and step: with its last token one unit of attention

// What a sequence could verify in the next step. survival[i]: the probability that its first i + 1 drafts are right.
struct DraftOffer {
  int32_t count = 0;
  std::array<float, kDraftsMax> survival{};
};

class DraftPlanner {
 public:
  explicit DraftPlanner(int32_t sequences_max);

  // A decoding sequence of the step, before Choose.
  struct Decode {
    int32_t span = 0;      // whose it is
    int64_t attended = 0;  // tokens, by its row
    const DraftOffer* offer = nullptr;
    int32_t drafts = 0;  // the answer
  };
  void Clear();
  void Add(const Decode& decode);
  // At most `each_max` for one sequence and `rows_max` in all.
  void Choose(int32_t each_max, int32_t rows_max);
  std::span<const Decode> decodes() const { return decodes_; }

  DecodeCost& cost() { return cost_; }
  const DecodeCost& cost() const { return cost_; }

 private:
  struct Candidate {
    float survival;
    int32_t decode;
    bool operator<(const Candidate& other) const {
      return survival != other.survival ? survival < other.survival : decode > other.decode;
    }
  };
  void Push(int32_t decode, int32_t each_max);

  DecodeCost cost_;
  std::vector<Decode> decodes_;
  DecodeLoad load_;
  std::vector<Candidate> candidates_;  // a heap: the next draft of each sequence
};

}  // namespace headrace
