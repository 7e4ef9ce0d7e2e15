// The executor of this machine's processors: model, kernels and sampler behind the Executor interface. The calling
// thread is worker 0 of the compute pool.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/compute_pool.h"
#include "base/huge_buffer.h"
#include "base/page_populator.h"
#include "executor/executor.h"
#include "kernels/kernel_table.h"
#include "model/llama.h"

namespace headrace {

struct CpuExecutorOptions {
  int threads = 1;
  std::string isa;        // "" for the best
  int64_t context = 0;    // 0: the model's
  uint64_t kv_bytes = 0;  // of the pool; at least one block is made
  // Above 0: the pool may be made smaller, down to this, to leave free half of what the weights leave free.
  uint64_t kv_bytes_least = 0;
  KvType kv_type = KvType::kInt16;
  int32_t rows_max = 256;
  int32_t logit_rows_max = 64;
  int32_t sequences_max = 32;
  uint64_t available_bytes = 0;  // memory to be had; 0: AvailableMemoryBytes
  std::string pack_folder;       // of packed weights between starts (model/pack_cache.h); "": none
};

class CpuExecutor final : public Executor {
 public:
  // Before any memory is used, weights as they are packed, KV cache, scratch and logits are compared with what is free:
  // kOverloaded with all figures.
  static Result<std::unique_ptr<CpuExecutor>> Load(const ModelFile& file, const ModelConfig& config,
                                                   const CpuExecutorOptions& options);

  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override;
  Result<const StepOutput*> Wait() override;
  void ReadBlock(int32_t block, std::span<std::byte> out) const override;
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override;

  // Called after each Forward with the logits [samples][vocab_size], before sampling changes them. For tests.
  using LogitsObserver = std::function<void(const StepInput&, const float*)>;
  void ObserveLogits(LogitsObserver observer) { observer_ = std::move(observer); }

  // The raw logits of the last step: [samples][vocab_size], destroyed by sampling. For tests and the quality bench:
  // Forward without sampling.
  Result<const float*> ForwardOnly(const StepInput& input);

 private:
  CpuExecutor() = default;
  void Forward(const StepInput& input);
  void SampleAll(const StepInput& input, float* logits);

  ExecutorDescription description_;
  std::unique_ptr<ComputePool> pool_;
  std::unique_ptr<LlamaModel> model_;
  HugeBuffer k_pages_, v_pages_;
  KvPages kv_;
  std::unique_ptr<PagePopulator> populator_;  // of the pages
  bool crowded_ = false;                      // said once
  std::vector<ForwardSpan> spans_;
  std::vector<int32_t> logit_rows_;
  HugeBuffer logits_;                               // float [logit_rows_max][vocab_size]
  std::vector<std::unique_ptr<Sampler>> samplers_;  // one per worker
  const StepInput* input_ = nullptr;
  StepOutput output_;
  LogitsObserver observer_;
};

}  // namespace headrace
