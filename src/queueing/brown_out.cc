#include "queueing/brown_out.h"

#include <algorithm>

namespace headrace {
namespace {

Rung Above(Rung rung) { return static_cast<Rung>(static_cast<int>(rung) + 1); }
Rung Below(Rung rung) { return static_cast<Rung>(static_cast<int>(rung) - 1); }

}  // namespace

TimeNs BrownOut::WaitOf(Rung rung) const {
  const int steps = static_cast<int>(rung) - static_cast<int>(Rung::kNoBatch);
  return steps < 0 ? wait_ / 2 : wait_ << steps;
}

void BrownOut::Observe(TimeNs wait, TimeNs now) {
  if (wait_ <= 0) return;
  while (rung_ < Rung::kShedNormal && wait >= WaitOf(Above(rung_))) {
    rung_ = Above(rung_);
    ++climbed_[static_cast<size_t>(rung_)];
    calm_since_ = kNever;
  }
  // Half of what took it here, so that it does not step up again at once.
  if (rung_ == Rung::kNone || wait >= WaitOf(rung_) / 2) {
    calm_since_ = kNever;
    return;
  }
  calm_since_ = std::min(calm_since_, now);
  if (now - calm_since_ < kBrownOutCalm) return;
  rung_ = Below(rung_);
  calm_since_ = now;
}

bool BrownOut::Sheds(Band band) const {
  return (band == Band::kBatch && AtLeast(Rung::kShedBatch)) || (band == Band::kNormal && AtLeast(Rung::kShedNormal));
}

int64_t BrownOut::MaxTokens(Band band, int64_t wanted) const {
  return band == Band::kBatch && AtLeast(Rung::kShortAnswers) ? std::min(wanted, kBrownOutTokens) : wanted;
}

}  // namespace headrace
