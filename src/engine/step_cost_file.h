// The step costs of one model on one machine as a JSON file, written by `headrace bench calibrate` and read by what
// plans or simulates with them:
//   {"headrace_step_cost": 1, "model": "…", "machine": "…", "kernels": "avx512", "threads": 2,
//    "step_us": …, "prompt_row_us": … and the others of StepCostConstants; what is missing is 0,
//    "error_median": 0.02, "error_p90": 0.06}
// Fields that are not known are passed over, so that later ones do no harm. Pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"
#include "scheduler/step_cost.h"

namespace headrace {

// A file of this kind has a few hundred bytes.
constexpr size_t kStepCostFileBytesMax = 64 << 10;

struct StepCostFile {
  std::string model, machine, kernels;
  int threads = 0;
  StepCostConstants constants;
  // Of the measured steps: how far the model is off, as a share.
  double error_median = 0, error_p90 = 0;
};

std::string FormatStepCost(const StepCostFile& file);
// kInvalidArgument names the field.
Result<StepCostFile> ParseStepCost(std::string_view json);

}  // namespace headrace
