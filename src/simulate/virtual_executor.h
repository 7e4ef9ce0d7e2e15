// An executor without tokens or tensors, for speed: a step takes as long as the machine's step-cost model says. What it
// answers is a function of request and position; nothing is computed from a prompt. Where the content of the KV cache
// matters (that no request reads another's blocks) the scripted executor stands instead.
#pragma once

#include <functional>

#include "base/clock.h"
#include "executor/executor.h"
#include "scheduler/step_cost.h"

namespace headrace {

// One replica. The defaults are a large GPU, about: the machine behind the figures of the policies.
struct VirtualMachine {
  StepCost cost;
  int64_t context = 1 << 20;
  int64_t kv_tokens = 600'000;
  int32_t batch_tokens_max = 2048;
  int32_t sequences_max = 256;
};

// Answers are spelled in letters, none of which ends one: max_tokens does, or the executor where it is told to.
constexpr int32_t kVirtualFirstToken = 'a';
constexpr int32_t kVirtualTokens = 26;

// What a step computes, for the step-cost model.
StepLoad LoadOf(const StepInput& input);

class VirtualExecutor final : public Executor {
 public:
  // Whether the answer with this seed ends at this position of its sequence.
  using EndsAt = std::function<bool(uint64_t seed, uint64_t position)>;

  // `pass` lets that much virtual time go by. Without `ends_at` no answer ends of itself.
  VirtualExecutor(const VirtualMachine& machine, std::function<void(TimeNs)> pass, EndsAt ends_at = nullptr);

  const ExecutorDescription& Describe() const override { return description_; }
  Status Submit(const StepInput& input) override;
  Result<const StepOutput*> Wait() override;
  // Its blocks hold nothing.
  void ReadBlock(int32_t, std::span<std::byte>) const override {}
  void WriteBlock(int32_t, std::span<const std::byte>) override {}

 private:
  const StepCost cost_;
  const std::function<void(TimeNs)> pass_;
  const EndsAt ends_at_;
  ExecutorDescription description_;
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

}  // namespace headrace
