// How long answers become, from those that have ended: an answer's end is known only when it is there, but what is
// admitted now has to fit until then. Older ones count less. A value; one thread.
#pragma once

#include <array>
#include <cstdint>

namespace headrace {

class AnswerLengths {
 public:
  AnswerLengths();

  // An answer ended, however it did, after so many tokens.
  void Ended(int64_t tokens);
  // Tokens that an answer which has `generated` may still get, on average over those that became longer, when it gets
  // at most `most` more. Where none became longer: as many again.
  int64_t Remaining(int64_t generated, int64_t most) const;

 private:
  static constexpr int kBuckets = 96;  // of lengths, four to a doubling

  static int BucketOf(int64_t tokens);
  void Sum();

  std::array<double, kBuckets> weight_{}, tokens_{};
  // Of each bucket and all above it.
  std::array<double, kBuckets + 1> weight_from_{}, tokens_from_{};
};

}  // namespace headrace
