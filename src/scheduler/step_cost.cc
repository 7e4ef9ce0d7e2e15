#include "scheduler/step_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace headrace {

Result<StepCost> StepCost::Make(const StepCostConstants& c) {
  constexpr double kHourUs = 3.6e9;
  const std::pair<const char*, double> values[] = {{"step_us", c.step_us},
                                                   {"prompt_row_us", c.prompt_row_us},
                                                   {"decode_row_us", c.decode_row_us},
                                                   {"context_token_ns", c.context_token_ns},
                                                   {"prompt_us", c.prompt_us},
                                                   {"prompt_context_ns", c.prompt_context_ns},
                                                   {"prompt_pair_ns", c.prompt_pair_ns},
                                                   {"wide_decode_row_us", c.wide_decode_row_us}};
  for (const auto& [name, value] : values) {
    if (!(value >= 0 && value <= kHourUs))
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is {}, but 0 to {} is possible.", name, value, kHourUs),
                  name);
  }
  // Time has to pass, or a simulation would never end.
  if (c.step_us < 0.001)
    return Fail(ErrorCode::kInvalidArgument, "step_us must be at least 0.001: a step takes some time.", "step_us");
  return StepCost(c);
}

TimeNs StepCost::Of(const StepLoad& load) const {
  const StepCostConstants& c = constants_;
  const double us = c.step_us + static_cast<double>(load.prompts) * c.prompt_us +
                    static_cast<double>(load.prompt_rows) * c.prompt_row_us +
                    static_cast<double>(load.decode_rows) * c.decode_row_us +
                    static_cast<double>(std::max<int64_t>(load.decode_rows - kNarrowDecodes, 0)) * c.wide_decode_row_us;
  const double ns = static_cast<double>(load.context_tokens) * c.context_token_ns +
                    static_cast<double>(load.prompt_context) * c.prompt_context_ns +
                    static_cast<double>(load.prompt_pairs) * c.prompt_pair_ns;
  return static_cast<TimeNs>(us * 1000 + ns + 0.5);
}

// n rows from position p on make n p + n (n + 1) / 2 pairs: the largest n of a quadratic equation.
int64_t StepCost::PromptRowsWithin(TimeNs target, const StepLoad& load, int64_t first_position) const {
  const StepCostConstants& c = constants_;
  const auto position = static_cast<double>(first_position);
  const double left = static_cast<double>(target - Of(load)) - c.prompt_us * 1000 - c.prompt_context_ns * position;
  if (left <= 0) return 0;
  const double row = c.prompt_row_us * 1000 + c.prompt_context_ns + c.prompt_pair_ns * (position + 0.5);
  if (row <= 0) return INT32_MAX;
  // The form that does not cancel where the square is small, or none.
  const double rows = 2 * left / (row + std::sqrt(row * row + 2 * c.prompt_pair_ns * left));
  return static_cast<int64_t>(std::min(rows, double{INT32_MAX}));
}

}  // namespace headrace
