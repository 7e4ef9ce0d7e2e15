#include "kv_cache/reuse_estimate.h"

#include <algorithm>
#include <bit>

namespace headrace {
namespace {

constexpr uint32_t kYoung = 8;  // touches: below it age is not told apart
constexpr double kFade = 0.9;
// One imagined reuse a cell, at a hazard of this over the age.
constexpr double kPriorReuses = 1;
constexpr double kPriorHazard = 0.2;

// First age of a cell, in touches: 0, 12, 16, 24, 32 ...
constexpr double FirstOf(int cell) {
  if (cell == 0) return 0;
  const double octave = static_cast<double>(kYoung) * static_cast<double>(uint64_t{1} << (cell / 2));
  return cell % 2 == 0 ? octave : octave * 1.5;
}

}  // namespace

ReuseEstimate::ReuseEstimate(int32_t blocks) : touches_per_fade_(16'384 + 4 * static_cast<uint32_t>(blocks)) {
  for (int c = 0; c < kClasses; ++c) Refresh(c);
}

int ReuseEstimate::ClassOf(uint32_t hits) {
  return hits < 3 ? static_cast<int>(hits) : hits < 5 ? 3 : hits < 16 ? 4 : 5;
}

int ReuseEstimate::AgeOf(uint32_t touches) {
  if (touches < kYoung) return 0;
  const int octave = std::bit_width(touches) - 1;  // >= 3
  const int half = static_cast<int>((touches >> (octave - 1)) & 1);
  return std::min(kAges - 1, 2 * (octave - 3) + half);
}

void ReuseEstimate::Touch() {
  if (++since_fade_ >= touches_per_fade_) Fade();
  if (++touches_ % kTouchesPerRefresh != 0) return;
  Refresh(next_class_);
  next_class_ = (next_class_ + 1) % kClasses;
}

void ReuseEstimate::Fade() {
  since_fade_ = 0;
  for (Table* table : {&reuses_, &exposures_}) {
    for (auto& row : *table) {
      for (double& cell : row) cell *= kFade;
    }
  }
}

void ReuseEstimate::Refresh(int reuse_class) {
  std::array<double, kAges> wide, chance;  // touches of a cell; that a block which enters it is reused in it
  for (int age = 0; age < kAges; ++age) {
    const auto at = static_cast<size_t>(age);
    wide[at] = FirstOf(age + 1) - FirstOf(age);
    const double middle = FirstOf(age) + wide[at] / 2;
    const double hazard = (Of(reuses_, reuse_class, age) + kPriorReuses) /
                          (Of(exposures_, reuse_class, age) + kPriorReuses * middle / kPriorHazard);
    chance[at] = hazard * wide[at] / (1 + hazard * wide[at]);
  }
  for (size_t from = 0; from < kAges; ++from) {
    double alive = 1, reused = 0, time = 0, best = 0;
    for (size_t at = from; at < kAges; ++at) {
      time += alive * (at == from ? 0.5 : 1.0) * wide[at] * (1 - chance[at] / 2);  // the first cell is half gone
      reused += alive * chance[at];
      alive *= 1 - chance[at];
      best = std::max(best, reused / time);
    }
    worth_[static_cast<size_t>(reuse_class)][from] = best;
  }
}

}  // namespace headrace
