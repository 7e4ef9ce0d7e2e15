// How many prompt rows a step takes while answers wait for their next token: as many as its target time leaves beside
// the decodes, by what prompt rows were measured to cost on this machine. Without a target of the operator's it is
// three times what the decodes take alone, which costs a prompt no more than half its speed, and no less than
// kShortestItl: faster than anybody reads. SmolLM2 on two threads, a prompt of 3,000 tokens beside four answers: with
// 20 ms it takes 2.7 times as long as alone, since few rows cost more each; with 45 ms 1.5 times. One thread; allocates
// nothing.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "queueing/fading_rate.h"

namespace headrace {

constexpr TimeNs kShortestItl = 45 * kNsPerMs;
constexpr double kItlOverDecodes = 3;
// While critical prompts come, each of which waits for half a step on average.
constexpr TimeNs kBriefItl = 18 * kNsPerMs;
constexpr double kBriefOverDecodes = 1.25;
// A step has at least so many, whatever they take: a prompt has to end some time. Whole tiles of the kernels, so that
// no row is paid for and not used.
constexpr int64_t kPromptRowsStep = 16;

class PromptBudget {
 public:
  // `target`: inter-token time; 0: as above.
  explicit PromptBudget(TimeNs target = 0) : target_(target) {}

  // `decodes`: what the step's decodes take alone. `brief`: the target is kBriefItl, or kBriefOverDecodes times what
  // they take, where that is less.
  int64_t Rows(TimeNs decodes, bool brief = false) const;
  // A step of `time` computed prompt rows beside decodes that take `decodes` alone, 0 if there were none.
  void Observe(TimeNs decodes, int64_t rows, TimeNs time);

 private:
  // After so many rows what was measured before weighs half: costs grow with a prompt's length.
  static constexpr double kHalfLifeRows = 512;
  double RowNs() const;

  const TimeNs target_;
  FadingRate beside_{kHalfLifeRows};  // nanoseconds by rows, beside decodes
  FadingRate alone_{kHalfLifeRows};
};

}  // namespace headrace
