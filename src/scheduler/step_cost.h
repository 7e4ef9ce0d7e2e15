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
  // What calibration finds beside them on CPUs: a chunk's first rows cost more than its later ones, and few answers
  // cost little more than one, since all read the same weights.
  double prompt_us = 0;           // of each prompt that has rows in the step
  double prompt_context_ns = 0;   // of each token that stands before a prompt's last row, once
  double prompt_pair_ns = 0;      // of a prompt's row and a token before it, to which it attends
  double wide_decode_row_us = 0;  // of each decoding row beyond the first kNarrowDecodes, on top
};

constexpr int64_t kNarrowDecodes = 8;

// What a step computes.
struct StepLoad {
  int64_t prompt_rows = 0;
  int64_t decode_rows = 0;
  int64_t context_tokens = 0;  // that the decoding sequences attend to, together
  int64_t prompts = 0;         // that have rows in the step
  int64_t prompt_context = 0;  // tokens up to each one's last row
  int64_t prompt_pairs = 0;    // tokens that their rows attend to, each

  // Rows of one sequence from `first_position` on. One row behind its prompt decodes; more are computed again.
  void Add(int64_t first_position, int64_t rows, int64_t prompt_tokens) {
    if (rows == 1 && first_position >= prompt_tokens) {
      ++decode_rows;
      context_tokens += first_position + 1;
    } else {
      ++prompts;
      prompt_rows += rows;
      prompt_context += first_position + rows;
      prompt_pairs += rows * first_position + rows * (rows + 1) / 2;
    }
  }
};

class StepCost {
 public:
  // The default constants.
  StepCost() = default;
  // kInvalidArgument for what is negative, not finite or above an hour, and for a step that takes no time at all.
  static Result<StepCost> Make(const StepCostConstants& constants);

  TimeNs Of(const StepLoad& load) const;
  // Rows of one more prompt, from `first_position` on, that a step may take beside `load` and last no longer than
  // `target`; 0 when it is longer already.
  int64_t PromptRowsWithin(TimeNs target, const StepLoad& load, int64_t first_position = 0) const;
  const StepCostConstants& constants() const { return constants_; }

 private:
  explicit StepCost(const StepCostConstants& constants) : constants_(constants) {}

  StepCostConstants constants_;
};

}  // namespace headrace
