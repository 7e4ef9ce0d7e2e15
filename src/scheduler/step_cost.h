// How long a step takes, as a straight line through what it does: the machine behind a simulation. An immutable value.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

struct StepCostConstants {
  // Of one large GPU, about: the machine behind the policies' figures. Other constants come from calibration.
  double step_us = 6000;
  double prompt_row_us = 50;
  double decode_row_us = 60;
  double context_token_ns = 12;
};

// What a step computes.
struct StepLoad {
  int64_t prompt_rows = 0;
  int64_t decode_rows = 0;
  int64_t context_tokens = 0;  // that the decoding sequences attend to, together
};

class StepCost {
 public:
  // The default constants.
  StepCost() = default;
  // kInvalidArgument for what is negative, not finite or above an hour, and for a step that takes no time at all.
  static Result<StepCost> Make(const StepCostConstants& constants);

  TimeNs Of(const StepLoad& load) const;
  // Prompt rows that a step may take beside `load` and last no longer than `target`; 0 when it is longer already.
  int64_t PromptRowsWithin(TimeNs target, const StepLoad& load) const;
  const StepCostConstants& constants() const { return constants_; }

 private:
  explicit StepCost(const StepCostConstants& constants) : constants_(constants) {}

  StepCostConstants constants_;
};

}  // namespace headrace
