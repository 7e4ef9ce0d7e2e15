// The engine without HTTP: prompts, and generation by batch and by depth of the context, each beside what this machine
// can do at most. Steps go to the executor as the engine sends them; token ids are random (the time does not depend on
// them) and sampling is greedy. Rows and probes are measured in turns, so that a neighbour or a clock that drifts hits
// all of them. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "bench/machine_probe.h"
#include "bench/model_cost.h"
#include "executor/cpu/cpu_executor.h"
#include "stats/summary.h"

namespace headrace {

struct EngineBenchOptions {
  int threads = 1;
  std::string isa;          // "": the best
  std::string pack_folder;  // of packed weights between starts; "": none
  KvType kv_type = KvType::kInt16;
  std::vector<int32_t> prompts, batches, depths;
  int32_t step_tokens = 256;  // of a prompt, at once
  int repeats = 5;
  uint64_t probe_bytes = 0;  // of the read probe; 0: larger than the last-level cache
};

struct EngineRow {
  int32_t prompt = 0;          // tokens; 0: generation
  int32_t batch = 0;           // sequences that generate
  int32_t depth = 0;           // tokens before the first generated one
  double step_tokens = 0;      // tokens that are counted in one measured step: the prompt's, or one of each sequence
  double step_operations = 0;  // of the matrices
  double step_bytes = 0;  // weights and KV that a step of generation reads; 0 for prompts, which read them in parts
  std::vector<double> step_seconds;  // by repeat; a prompt is one step here
};

// Rates of each round of probes.
struct ProbeRounds {
  std::vector<double> read_gb_s;       // of a buffer larger than the caches
  std::vector<double> read_step_gb_s;  // of one as large as what a step reads
  std::vector<double> dot_gop_s, tile_gop_s;
};

struct EngineReport {
  std::string model, machine, kernels;  // model "": probes alone
  int threads = 0;
  uint64_t weight_bytes = 0, step_weight_bytes = 0, probe_bytes = 0, cache_bytes = 0;
  std::string dots_name, tile_dots_name;
  std::vector<EngineRow> rows;
  ProbeRounds probes;
  std::vector<std::string> left_out;  // rows that the model's context has no room for
};

// The probes alone, `repeats` rounds.
Result<EngineReport> ProbeMachine(const EngineBenchOptions& options, const Clock& clock);

class EngineBench {
 public:
  // Loads the weights. REQUIRES: positive counts, repeats > 0. A depth may be 0.
  static Result<std::unique_ptr<EngineBench>> Open(const ModelFile& file, const EngineBenchOptions& options,
                                                   const Clock& clock);

  // Says on `progress` which round begins.
  Result<EngineReport> Run(const std::function<void(const std::string&)>& progress);

 private:
  EngineBench(const EngineBenchOptions& options, const Clock& clock) : options_(options), clock_(clock) {}
  void PlanRows(int64_t context);
  CpuExecutorOptions ExecutorOptions() const;
  // The deep sequence's tokens, once: each repeat goes on behind them.
  Status FillDeepSequence();
  Result<double> Measure(EngineRow& row);
  Result<double> MeasurePrompt(int32_t tokens, int32_t first_block);
  Result<double> MeasureGeneration(EngineRow& row);
  // A span of `rows` random tokens of one sequence from `position` on; the last one's token is drawn if `sampled`.
  void AddSpan(int32_t sequence, int32_t first_block, int32_t blocks, int32_t position, int32_t rows, bool sampled);
  Status RunStep();

  const EngineBenchOptions options_;
  const Clock& clock_;
  ModelConfig config_;
  ModelCost cost_;
  std::unique_ptr<CpuExecutor> executor_;
  std::unique_ptr<MachineProbe> probe_;
  EngineReport report_;
  int32_t deepest_ = 0;
  int32_t deep_blocks_ = 0;  // of the deep sequence, in front of all others
  Random random_{1};
  StepInput step_;
};

}  // namespace headrace
