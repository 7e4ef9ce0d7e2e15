// What a step of decodes costs on this machine, learned from the steps themselves: a straight line through whether
// anything is drafted, rows, and tokens attended to, by least squares that forget, held by what rows cost elsewhere
// until steps have differed enough to tell. Decides how much is drafted, never what is answered. One thread; allocates
// nothing.
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"

namespace headrace {

struct DecodeLoad {
  int32_t rows = 0;      // drafts among them
  bool drafts = false;   // whether a sequence has more than one row
  int64_t attended = 0;  // tokens, by all rows together
};

class DecodeCost {
 public:
  DecodeCost();

  void Observe(const DecodeLoad& load, TimeNs time);
  // In units of its own until the first observation, then nanoseconds; always above 0.
  double Of(const DecodeLoad& load) const;
  // In nanoseconds; 0 before the first observation and for no rows.
  TimeNs TimeOf(const DecodeLoad& load) const {
    return scales_ > 0 && load.rows > 0 ? static_cast<TimeNs>(Of(load)) : 0;
  }
  // Of one more row that attends to so many tokens.
  double OfRow(int64_t attended) const;

 private:
  static constexpr size_t kTerms = 4;
  using Terms = std::array<double, kTerms>;
  static Terms TermsOf(const DecodeLoad& load);
  void Solve();

  std::array<Terms, kTerms> products_{};  // sum of terms by terms, older steps less
  Terms times_{};                         // sum of terms by time
  double scale_ = 1, scales_ = 0;         // time of what kElsewhere calls 1; observations behind it
  Terms costs_;
};

}  // namespace headrace
