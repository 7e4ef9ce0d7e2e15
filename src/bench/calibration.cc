#include "bench/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/cpu.h"
#include "kv_cache/block_name.h"
#include "model/model_config.h"
#include "stats/least_squares.h"
#include "stats/summary.h"

namespace headrace {
namespace {

// Of one repeat of a point: its steps' median is what counts, so that neither a neighbour's turn on a processor does,
// nor the first step after one of another shape: in a server most steps follow one of their own. Long steps are
// measured once: the whole takes some seconds.
constexpr int kStepsPerRepeat = 9;
constexpr TimeNs kRepeatNs = 20 * kNsPerMs;
constexpr size_t kFeatures = 8;
constexpr double kLeastStepUs = 0.001;  // as StepCost::Make wants it

// In the order of ConstantsOf.
void AppendFeatures(const StepLoad& load, double weight, std::vector<double>* out) {
  for (const int64_t feature :
       {int64_t{1}, load.prompt_rows, load.decode_rows, load.context_tokens, load.prompts, load.prompt_context,
        load.prompt_pairs, std::max<int64_t>(load.decode_rows - kNarrowDecodes, 0)})
    out->push_back(static_cast<double>(feature) * weight);
}

StepCostConstants ConstantsOf(const std::vector<double>& us) {
  return {.step_us = std::max(us[0], kLeastStepUs),
          .prompt_row_us = us[1],
          .decode_row_us = us[2],
          .context_token_ns = us[3] * 1000,
          .prompt_us = us[4],
          .prompt_context_ns = us[5] * 1000,
          .prompt_pair_ns = us[6] * 1000,
          .wide_decode_row_us = us[7]};
}

std::vector<double> Errors(const std::vector<CalibrationPoint>& points) {
  std::vector<double> errors;
  for (const CalibrationPoint& p : points) errors.push_back(std::abs(p.fitted_us / p.median_us - 1));
  return errors;
}

}  // namespace

StepCostConstants FitStepCost(const std::vector<CalibrationPoint>& points) {
  std::vector<double> features, values;
  for (const CalibrationPoint& p : points) {
    AppendFeatures(p.load, 1 / p.median_us, &features);
    values.push_back(1);
  }
  return ConstantsOf(FitNonNegative(features, kFeatures, values));
}

Result<std::unique_ptr<Calibration>> Calibration::Open(const ModelFile& file, const CalibrationOptions& options,
                                                       const Clock& clock) {
  std::unique_ptr<Calibration> calibration(new Calibration(options, clock));
  HR_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(file));
  CalibrationOptions& o = calibration->options_;
  o.kv_tokens = static_cast<int32_t>(std::min<int64_t>(o.kv_tokens, config.context));
  o.rows_max = std::min(o.rows_max, o.kv_tokens);
  HR_ASSIGN_OR_RETURN(calibration->executor_,
                      CpuExecutor::Load(file, config,
                                        {.threads = o.threads,
                                         .isa = o.isa,
                                         .context = o.kv_tokens,
                                         .kv_bytes = static_cast<uint64_t>(BlocksFor(o.kv_tokens) * kBlockTokens) *
                                                     static_cast<uint64_t>(config.KvBytesPerToken(o.kv_type)),
                                         .kv_type = o.kv_type,
                                         .rows_max = o.rows_max,
                                         .logit_rows_max = o.sequences_max,
                                         .sequences_max = o.sequences_max,
                                         .pack_folder = o.pack_folder}));
  StepCostFile& out = calibration->report_.file;
  out.model = file.name();
  out.machine = CpuModelName();
  out.kernels = calibration->executor_->Describe().kernels;
  out.threads = o.threads;
  calibration->PlanPoints();
  return calibration;
}

void Calibration::PlanPoints() {
  for (const int32_t position : {0, 1024, 4096}) {
    for (const int32_t rows : {16, 64, 128, 256, 512}) Plan(rows, position, 0, 0);
  }
  Plan(1024, 0, 0, 0);
  for (const int32_t context : {32, 256, 1024, 4096}) {
    for (const int32_t decodes : {1, 2, 4, 8, 16, 32}) Plan(0, 0, decodes, context);
  }
  Plan(64, 512, 8, 256);
  Plan(192, 0, 16, 256);
  Plan(224, 1024, 4, 512);
}

// Left out where the KV pages have no room: prompt first, then the decoding sequences.
void Calibration::Plan(int32_t prompt_rows, int32_t position, int32_t decodes, int32_t context) {
  const int64_t prompt_blocks = prompt_rows > 0 ? BlocksFor(position + prompt_rows) : 0;
  const int64_t blocks = prompt_blocks + decodes * BlocksFor(context + 1);
  if (blocks * kBlockTokens > options_.kv_tokens || prompt_rows + decodes > options_.rows_max ||
      decodes > options_.sequences_max)
    return;
  CalibrationPoint point{.prompt_rows = prompt_rows, .position = position, .decodes = decodes, .context = context};
  if (prompt_rows > 0) point.load.Add(position, prompt_rows, position + prompt_rows);
  for (int32_t i = 0; i < decodes; ++i) point.load.Add(context, 1, context);
  report_.points.push_back(std::move(point));
}

Result<CalibrationReport> Calibration::Run(const std::function<void(const std::string&)>& progress) {
  progress("writing the context and warming up");
  HR_RETURN_IF_ERROR(WriteKv());
  for (CalibrationPoint& point : report_.points) HR_RETURN_IF_ERROR(Measure(point));
  std::vector<CalibrationPoint*> order;
  for (CalibrationPoint& point : report_.points) order.push_back(&point);
  for (int r = 0; r < options_.repeats; ++r) {
    progress(fmt::format("round {} of {}", r + 1, options_.repeats));
    // In another order each time, so that what a step leaves behind in caches and clocks hits no point always.
    for (size_t left = order.size(); left > 1; --left) std::swap(order[left - 1], order[random_.Below(left)]);
    for (CalibrationPoint* point : order) {
      HR_ASSIGN_OR_RETURN(const double seconds, Measure(*point));
      point->seconds.push_back(seconds);
    }
  }
  for (CalibrationPoint& point : report_.points) point.median_us = 1e6 * Summarise(point.seconds).median;
  StepCostFile& file = report_.file;
  file.constants = FitStepCost(report_.points);
  HR_ASSIGN_OR_RETURN(const StepCost cost, StepCost::Make(file.constants));
  for (CalibrationPoint& point : report_.points) point.fitted_us = static_cast<double>(cost.Of(point.load)) / kNsPerUs;
  const std::vector<double> errors = Errors(report_.points);
  file.error_median = Quantile(errors, 0.5);
  file.error_p90 = Quantile(errors, 0.9);
  return report_;
}

Status Calibration::WriteKv() {
  for (int32_t done = 0, rows; done < options_.kv_tokens; done += rows) {
    rows = std::min(options_.rows_max, options_.kv_tokens - done);
    step_.Clear();
    AddSpan(0, done, rows, false);
    HR_RETURN_IF_ERROR(RunStep());
  }
  return {};
}

Result<double> Calibration::Measure(const CalibrationPoint& point) {
  step_.Clear();
  int32_t block = 0;
  // In a server most chunks of a long prompt want no token; short prompts are one chunk that wants one.
  if (point.prompt_rows > 0) {
    AddSpan(block, point.position, point.prompt_rows, point.prompt_rows < options_.rows_max / 2);
    block += static_cast<int32_t>(BlocksFor(point.position + point.prompt_rows));
  }
  for (int32_t i = 0; i < point.decodes; ++i) {
    AddSpan(block, point.context, 1, true);
    block += static_cast<int32_t>(BlocksFor(point.context + 1));
  }
  std::vector<double> seconds;
  const TimeNs begin = clock_.Now();
  for (int i = 0; i == 0 || (i < kStepsPerRepeat && clock_.Now() - begin < kRepeatNs); ++i) {
    const TimeNs start = clock_.Now();
    HR_RETURN_IF_ERROR(RunStep());
    seconds.push_back(static_cast<double>(clock_.Now() - start) / kNsPerSecond);
  }
  return Summarise(seconds).median;
}

void Calibration::AddSpan(int32_t first_block, int32_t position, int32_t rows, bool sampled) {
  const auto first_row = static_cast<int32_t>(step_.token_ids.size());
  const auto span = static_cast<int32_t>(step_.spans.size());
  const auto blocks = static_cast<int32_t>(BlocksFor(position + rows));
  step_.spans.push_back({.request = static_cast<uint64_t>(span) + 1,
                         .first_row = first_row,
                         .rows = rows,
                         .first_position = position,
                         .prompt_tokens = position + (rows > 1 ? rows : 0),
                         .first_block = static_cast<int32_t>(step_.blocks.size()),
                         .block_count = blocks});
  for (int32_t b = 0; b < blocks; ++b) step_.blocks.push_back(first_block + b);
  const auto vocabulary = static_cast<uint64_t>(executor_->Describe().vocab_size);
  for (int32_t r = 0; r < rows; ++r) step_.token_ids.push_back(static_cast<int32_t>(random_.Below(vocabulary)));
  if (sampled) step_.samples.push_back({.row = first_row + rows - 1, .span = span});
}

Status Calibration::RunStep() {
  HR_RETURN_IF_ERROR(executor_->Submit(step_));
  HR_RETURN_IF_ERROR(executor_->Wait());
  return {};
}

std::string CalibrationAsMarkdown(const CalibrationReport& report) {
  const StepCostFile& f = report.file;
  const StepCostConstants& c = f.constants;
  std::string out = fmt::format(
      "# Step costs of {}\n\n{}, {} threads, kernels {}\n\n"
      "A step takes {:.0f} us. An answer in it takes {:.1f} us, {:.1f} us more beyond the first {}, and {:.1f} ns for "
      "each token that it attends to. A prompt takes {:.0f} us, {:.1f} us for each of its tokens, {:.1f} ns for each "
      "up "
      "to its last and {:.1f} ns for each that one of them attends to.\n"
      "Measured steps are off by {:.1f} % in the middle, by less than {:.1f} % in nine of ten.\n\n"
      "| prompt rows | from position | answers | context of each | measured ms (least to largest) | fitted ms | off by "
      "|\n"
      "|---|---|---|---|---|---|---|\n",
      f.model, f.machine, f.threads, f.kernels, c.step_us, c.decode_row_us, c.wide_decode_row_us, kNarrowDecodes,
      c.context_token_ns, c.prompt_us, c.prompt_row_us, c.prompt_context_ns, c.prompt_pair_ns, 100 * f.error_median,
      100 * f.error_p90);
  for (const CalibrationPoint& p : report.points) {
    const Summary s = Summarise(p.seconds);
    fmt::format_to(std::back_inserter(out), "| {} | {} | {} | {} | {:.2f} ({:.2f} to {:.2f}) | {:.2f} | {:+.1f} % |\n",
                   p.prompt_rows, p.position, p.decodes, p.context, s.median * 1e3, s.least * 1e3, s.largest * 1e3,
                   p.fitted_us / 1e3, 100 * (p.fitted_us / p.median_us - 1));
  }
  return out;
}

}  // namespace headrace
