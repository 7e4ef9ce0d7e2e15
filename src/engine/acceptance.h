// How often the next token was the one that a match foretold, by the length of the match. Learned from every token that
// has a forecast, drafted or not: so it costs no row, and a text that does not repeat itself is never drafted to find
// out. Values; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace headrace {

class Acceptance {
 public:
  // `memory`: tokens of a kind after which one counts for 1 / e.
  explicit Acceptance(float memory) : keep_(1 - 1 / memory) {}

  void Note(int32_t match_length, bool right) {
    Count& count = counts_[KindOf(match_length)];
    count.right = count.right * keep_ + (right ? 1.0f : 0.0f);
    count.all = count.all * keep_ + 1;
  }
  // With `weight` tokens at the rate `prior` before the first.
  float Rate(int32_t match_length, float prior, float weight) const {
    const Count& count = counts_[KindOf(match_length)];
    return (count.right + prior * weight) / (count.all + weight);
  }

 private:
  struct Count {
    float right = 0, all = 0;
  };
  // Longest matches of each kind but the last.
  static constexpr std::array<int32_t, 7> kLongest = {2, 3, 4, 6, 9, 15, 31};
  static size_t KindOf(int32_t match_length) {
    return static_cast<size_t>(std::ranges::lower_bound(kLongest, match_length) - kLongest.begin());
  }

  const float keep_;
  std::array<Count, kLongest.size() + 1> counts_;
};

}  // namespace headrace
