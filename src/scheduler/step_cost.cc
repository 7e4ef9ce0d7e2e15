#include "scheduler/step_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace headrace {

Result<StepCost> StepCost::Make(const StepCostConstants& c) {
  constexpr double kHourUs = 3.6e9;
  const std::pair<const char*, double> values[] = {{"step_us", c.step_us},
                                                   {"prompt_row_us", c.prompt_row_us},
                                                   {"decode_row_us", c.decode_row_us},
                                                   {"context_token_ns", c.context_token_ns}};
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
  const double us = constants_.step_us + static_cast<double>(load.prompt_rows) * constants_.prompt_row_us +
                    static_cast<double>(load.decode_rows) * constants_.decode_row_us +
                    static_cast<double>(load.context_tokens) * constants_.context_token_ns / 1000;
  return static_cast<TimeNs>(us * 1000 + 0.5);
}

int64_t StepCost::PromptRowsWithin(TimeNs target, const StepLoad& load) const {
  const TimeNs left = target - Of(load);
  if (left <= 0) return 0;
  if (constants_.prompt_row_us <= 0) return INT32_MAX;
  return static_cast<int64_t>(
      std::min(static_cast<double>(left) / (constants_.prompt_row_us * 1000), double{INT32_MAX}));
}

}  // namespace headrace
