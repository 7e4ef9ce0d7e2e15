// Step costs of this machine: steps of many shapes are measured as the engine sends them, and the model of
// scheduler/step_cost.h is fitted to them by least squares of the relative error. Token ids are random; the KV pages
// that are read have been written, so that they are real memory. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "engine/step_cost_file.h"
#include "executor/cpu/cpu_executor.h"

namespace headrace {

struct CalibrationOptions {
  int threads = 1;
  std::string isa;          // "": the best
  std::string pack_folder;  // of packed weights between starts; "": none
  KvType kv_type = KvType::kInt16;
  int repeats = 5;
  int32_t rows_max = 1024;   // of a prompt in one step
  int32_t kv_tokens = 8192;  // written before measuring, and attended to
  int32_t sequences_max = 32;
};

struct CalibrationPoint {
  int32_t prompt_rows = 0, position = 0;  // of one prompt
  int32_t decodes = 0, context = 0;       // sequences that decode, and the tokens before each one's
  StepLoad load;
  std::vector<double> seconds;  // by repeat
  double median_us = 0, fitted_us = 0;
};

struct CalibrationReport {
  std::vector<CalibrationPoint> points;
  StepCostFile file;
};

// The constants that fit the points' medians best, and by how much they are off. REQUIRES: points have medians above 0.
StepCostConstants FitStepCost(const std::vector<CalibrationPoint>& points);

class Calibration {
 public:
  // Loads the weights. REQUIRES: positive counts.
  static Result<std::unique_ptr<Calibration>> Open(const ModelFile& file, const CalibrationOptions& options,
                                                   const Clock& clock);
  // Says on `progress` which round begins.
  Result<CalibrationReport> Run(const std::function<void(const std::string&)>& progress);

 private:
  Calibration(const CalibrationOptions& options, const Clock& clock) : options_(options), clock_(clock) {}
  void PlanPoints();
  void Plan(int32_t prompt_rows, int32_t position, int32_t decodes, int32_t context);
  Status WriteKv();
  Result<double> Measure(const CalibrationPoint& point);
  void AddSpan(int32_t first_block, int32_t position, int32_t rows, bool sampled);
  Status RunStep();

  CalibrationOptions options_;
  const Clock& clock_;
  std::unique_ptr<CpuExecutor> executor_;
  CalibrationReport report_;
  Random random_{1};
  StepInput step_;
};

std::string CalibrationAsMarkdown(const CalibrationReport& report);

}  // namespace headrace
