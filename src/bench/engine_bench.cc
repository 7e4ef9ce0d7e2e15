#include "bench/engine_bench.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "kv_cache/block_pool.h"

namespace headrace {
namespace {

// A repeat of generation: at least this long and this many steps, unless the most steps come first.
constexpr TimeNs kRepeatNs = 300 * kNsPerMs;
constexpr int32_t kStepsMin = 4, kStepsMax = 64;

int32_t Blocks(int64_t tokens) { return static_cast<int32_t>(BlocksFor(tokens)); }

void RunProbes(MachineProbe& probe, uint64_t step_bytes, ProbeRounds& rounds) {
  rounds.read_gb_s.push_back(probe.ReadRate(probe.buffer_bytes()));
  if (step_bytes > 0) rounds.read_step_gb_s.push_back(probe.ReadRate(step_bytes));
  rounds.dot_gop_s.push_back(probe.DotRate());
  if (probe.has_tiles()) rounds.tile_gop_s.push_back(probe.TileDotRate());
}

void Describe(const MachineProbe& probe, const EngineBenchOptions& options, const std::string& kernels,
              EngineReport& report) {
  report.machine = CpuModelName();
  report.kernels = kernels;
  report.threads = options.threads;
  report.probe_bytes = probe.buffer_bytes();
  report.cache_bytes = LargestCacheBytes();
  report.dots_name = probe.dots_name();
  report.tile_dots_name = probe.tile_dots_name();
}

}  // namespace

Result<EngineReport> ProbeMachine(const EngineBenchOptions& options, const Clock& clock) {
  HR_ASSIGN_OR_RETURN(const KernelTable* kernels, ChooseKernels(options.isa));
  HR_ASSIGN_OR_RETURN(const auto probe, MachineProbe::Open(options.threads, kernels->name, options.probe_bytes, clock));
  EngineReport report;
  Describe(*probe, options, kernels->name, report);
  for (int r = 0; r < options.repeats; ++r) RunProbes(*probe, 0, report.probes);
  return report;
}

Result<std::unique_ptr<EngineBench>> EngineBench::Open(const ModelFile& file, const EngineBenchOptions& options,
                                                       const Clock& clock) {
  std::unique_ptr<EngineBench> bench(new EngineBench(options, clock));
  HR_ASSIGN_OR_RETURN(bench->config_, ReadModelConfig(file));
  bench->cost_ = CostOf(file, bench->config_, options.kv_type);
  bench->PlanRows(bench->config_.context);
  HR_ASSIGN_OR_RETURN(bench->executor_, CpuExecutor::Load(file, bench->config_, bench->ExecutorOptions()));
  const ExecutorDescription& d = bench->executor_->Describe();
  HR_ASSIGN_OR_RETURN(bench->probe_, MachineProbe::Open(options.threads, d.kernels, options.probe_bytes, clock));
  Describe(*bench->probe_, options, d.kernels, bench->report_);
  bench->report_.model = file.name();
  bench->report_.weight_bytes = d.weight_bytes;
  bench->report_.step_weight_bytes = bench->cost_.step_weight_bytes;
  return bench;
}

void EngineBench::PlanRows(int64_t context) {
  const auto add = [&](EngineRow row) {
    const auto same = [&](const EngineRow& other) {
      return other.prompt == row.prompt && other.batch == row.batch && other.depth == row.depth;
    };
    if (std::ranges::any_of(report_.rows, same)) return;
    if (row.prompt > context || row.depth + kStepsMax > context) {
      const std::string what = row.prompt > 0 ? fmt::format("a prompt of {}", row.prompt)
                                              : fmt::format("{} at depth {}", row.batch, row.depth);
      return report_.left_out.push_back(fmt::format("{}: the model's context is {}", what, context));
    }
    deepest_ = std::max(deepest_, row.depth);
    report_.rows.push_back(std::move(row));
  };
  for (const int32_t n : options_.prompts)
    add({.prompt = n, .step_tokens = static_cast<double>(n), .step_operations = cost_.Operations(n, 1)});
  for (const int32_t depth : options_.depths) {
    for (const int32_t b : options_.batches) {
      // Several sequences are measured without a context only: the deep one is filled once, for one of them.
      if (depth > 0 && b != 1) continue;
      add({.batch = b,
           .depth = depth,
           .step_tokens = static_cast<double>(b),
           .step_operations = cost_.Operations(b, b)});
    }
  }
  deep_blocks_ = deepest_ > 0 ? Blocks(deepest_ + kStepsMax) : 0;
}

CpuExecutorOptions EngineBench::ExecutorOptions() const {
  int32_t batch_max = 1, prompt_max = 1;
  for (const EngineRow& row : report_.rows) {
    batch_max = std::max(batch_max, row.batch);
    prompt_max = std::max(prompt_max, row.prompt);
  }
  const int64_t blocks = deep_blocks_ + std::max(batch_max * Blocks(kStepsMax), Blocks(prompt_max));
  return {.threads = options_.threads,
          .isa = options_.isa,
          .context = std::max({prompt_max, deepest_ + kStepsMax, kBlockTokens}),
          .kv_bytes = static_cast<uint64_t>(blocks * kBlockTokens * config_.KvBytesPerToken(options_.kv_type)),
          .kv_type = options_.kv_type,
          .rows_max = std::max(options_.step_tokens, batch_max),
          .logit_rows_max = batch_max,
          .sequences_max = batch_max,
          .pack_folder = options_.pack_folder};
}

Result<EngineReport> EngineBench::Run(const std::function<void(const std::string&)>& progress) {
  progress("filling the context and warming up");
  HR_RETURN_IF_ERROR(FillDeepSequence());
  for (EngineRow& row : report_.rows) HR_RETURN_IF_ERROR(Measure(row));
  const uint64_t step_bytes = cost_.step_weight_bytes;
  for (int r = 0; r < options_.repeats; ++r) {
    progress(fmt::format("round {} of {}", r + 1, options_.repeats));
    for (EngineRow& row : report_.rows) {
      RunProbes(*probe_, step_bytes, report_.probes);
      HR_ASSIGN_OR_RETURN(const double seconds, Measure(row));
      row.step_seconds.push_back(seconds);
    }
  }
  RunProbes(*probe_, step_bytes, report_.probes);
  return report_;
}

Status EngineBench::FillDeepSequence() {
  if (deepest_ == 0) return {};
  HR_RETURN_IF_ERROR(MeasurePrompt(deepest_, 0));
  return {};
}

Result<double> EngineBench::Measure(EngineRow& row) {
  return row.prompt > 0 ? MeasurePrompt(row.prompt, deep_blocks_) : MeasureGeneration(row);
}

Result<double> EngineBench::MeasurePrompt(int32_t tokens, int32_t first_block) {
  const TimeNs start = clock_.Now();
  for (int32_t done = 0, rows; done < tokens; done += rows) {
    rows = std::min(options_.step_tokens, tokens - done);
    step_.Clear();
    AddSpan(0, first_block, Blocks(done + rows), done, rows, done + rows == tokens);
    HR_RETURN_IF_ERROR(RunStep());
  }
  return static_cast<double>(clock_.Now() - start) * 1e-9;
}

Result<double> EngineBench::MeasureGeneration(EngineRow& row) {
  const TimeNs start = clock_.Now();
  TimeNs took = 0;
  int32_t steps = 0;
  for (; steps < kStepsMax && (steps < kStepsMin || took < kRepeatNs); ++steps) {
    step_.Clear();
    for (int32_t s = 0; s < row.batch; ++s) {
      const int32_t first_block = row.depth > 0 ? 0 : deep_blocks_ + s * Blocks(kStepsMax);
      AddSpan(s, first_block, Blocks(row.depth + kStepsMax), row.depth + steps, 1, true);
    }
    HR_RETURN_IF_ERROR(RunStep());
    took = clock_.Now() - start;
  }
  // Position p reads the p + 1 tokens up to itself.
  const double tokens_read = row.batch * (row.depth + (steps + 1) / 2.0);
  row.step_bytes =
      static_cast<double>(cost_.step_weight_bytes) + tokens_read * static_cast<double>(cost_.kv_bytes_per_token);
  return static_cast<double>(took) * 1e-9 / steps;
}

void EngineBench::AddSpan(int32_t sequence, int32_t first_block, int32_t blocks, int32_t position, int32_t rows,
                          bool sampled) {
  const auto first_row = static_cast<int32_t>(step_.token_ids.size());
  const auto span = static_cast<int32_t>(step_.spans.size());
  step_.spans.push_back({.request = static_cast<uint64_t>(sequence) + 1,
                         .first_row = first_row,
                         .rows = rows,
                         .first_position = position,
                         .prompt_tokens = position + rows,
                         .first_block = static_cast<int32_t>(step_.blocks.size()),
                         .block_count = blocks});
  for (int32_t b = 0; b < blocks; ++b) step_.blocks.push_back(first_block + b);
  for (int32_t r = 0; r < rows; ++r) {
    step_.token_ids.push_back(
        static_cast<int32_t>(random_.Below(static_cast<uint64_t>(executor_->Describe().vocab_size))));
  }
  if (!sampled) return;
  StepSample sample{.row = first_row + rows - 1, .span = span};
  sample.params.temperature = 0;
  step_.samples.push_back(sample);
}

Status EngineBench::RunStep() {
  HR_RETURN_IF_ERROR(executor_->Submit(step_));
  HR_RETURN_IF_ERROR(executor_->Wait());
  return {};
}

}  // namespace headrace
