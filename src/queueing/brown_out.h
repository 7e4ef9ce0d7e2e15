// The ladder of what is given up first when more comes than can be served: each rung costs its callers more than the
// one below. It is climbed by how long a normal request that joins the line now would wait, never by load as such: a
// busy server that keeps up gives up nothing. What the rungs take away does not count as relief (batch work is not in
// the wait), so that the ladder does not swing. Pure; one thread.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"
#include "queueing/band.h"

namespace headrace {

enum class Rung : uint8_t {
  kNone,
  kNoDrafts,      // speculation stops: its rows are work that may be for nothing
  kNoBatch,       // batch work rests; what it has stays
  kShortAnswers,  // new batch requests get kBrownOutTokens at most (finish reason length)
  kShedBatch,     // new batch requests are refused
  kShedNormal,    // new normal requests are refused, too
};
constexpr int kRungs = 6;

// The longest answer of a new batch request on kShortAnswers.
constexpr int64_t kBrownOutTokens = 256;
// Where the second rung stands unless the operator says otherwise; each stands for twice the wait of the one below it.
// A queue of minutes is what some callers want: only beyond four minutes are normal requests refused.
constexpr TimeNs kBrownOutWait = 30 * kNsPerSecond;
// A rung up is taken at once, a rung down after the wait has been short enough for so long.
constexpr TimeNs kBrownOutCalm = kNsPerSecond / 2;

class BrownOut {
 public:
  // `wait`: on the second rung; 0: the ladder is never climbed.
  explicit BrownOut(TimeNs wait = kBrownOutWait) : wait_(wait) {}

  // `wait`: until the first token of a normal request that would join now.
  void Observe(TimeNs wait, TimeNs now);

  Rung rung() const { return rung_; }
  bool AtLeast(Rung rung) const { return rung_ >= rung; }
  // Whether new requests of the band are refused.
  bool Sheds(Band band) const;
  int64_t MaxTokens(Band band, int64_t wanted) const;
  // How often each rung was stepped on from below.
  const std::array<uint64_t, kRungs>& climbed() const { return climbed_; }

 private:
  TimeNs WaitOf(Rung rung) const;

  const TimeNs wait_;
  Rung rung_ = Rung::kNone;
  TimeNs calm_since_ = kNever;  // the wait has been short enough for the rung below; kNever: it is not
  std::array<uint64_t, kRungs> climbed_{};
};

}  // namespace headrace
