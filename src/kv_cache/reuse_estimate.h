// How much a cached block is worth: learned from the traffic itself, so that no rule has to be chosen for it. Blocks
// are sorted by how often they were wanted (class) and by how long ago (age, in blocks touched since). For each pair
// the cache counts reuses and, by random visits to blocks present and gone, the time that blocks spent there: their
// quotient is the hazard of reuse. Worth is the best ratio, over all times to keep the block, of the chance that it is
// wanted by then to the time that it takes up room: Gittins' index (Gittins, "Bandit processes and dynamic allocation
// indices", 1979), with the classes and ages of LHD (Beckmann, Chen, Cidon, "LHD: improving cache hit rate by
// maximizing hit density", NSDI 2018). Before it has seen anything hazard falls as 1 / age, which is LRU.
//
// One thread. No clock, no allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace headrace {

class ReuseEstimate {
 public:
  static constexpr int kClasses = 6;  // wanted again 0, 1, 2, 3-4, 5-15, more times
  static constexpr int kAges = 60;    // two an octave, from 8 touches to 2^32

  // A pool of `blocks` blocks: what is known fades over some hundred times its size.
  explicit ReuseEstimate(int32_t blocks);

  static int ClassOf(uint32_t hits);
  static int AgeOf(uint32_t touches);

  void CountReuse(int reuse_class, uint32_t touches) { Of(reuses_, reuse_class, AgeOf(touches)) += 1; }
  // A block was seen at that age by a visit that stands for `weight` touches.
  void CountVisit(int reuse_class, uint32_t touches, double weight) {
    Of(exposures_, reuse_class, AgeOf(touches)) += weight;
  }
  // Once a touch: every kTouchesPerRefresh-th recomputes one class.
  void Touch();

  double Worth(int reuse_class, uint32_t touches) const {
    return worth_[static_cast<size_t>(reuse_class)][static_cast<size_t>(AgeOf(touches))];
  }

 private:
  static constexpr uint32_t kTouchesPerRefresh = 64;
  using Table = std::array<std::array<double, kAges>, kClasses>;
  static double& Of(Table& table, int reuse_class, int age) {
    return table[static_cast<size_t>(reuse_class)][static_cast<size_t>(age)];
  }
  void Refresh(int reuse_class);
  void Fade();

  const uint32_t touches_per_fade_;
  Table reuses_{}, exposures_{}, worth_{};
  uint32_t touches_ = 0, since_fade_ = 0;
  int next_class_ = 0;
};

}  // namespace headrace
