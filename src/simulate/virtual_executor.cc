#include "simulate/virtual_executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "executor/scripted/script.h"
#include "kv_cache/block_name.h"

namespace headrace {

StepLoad LoadOf(const StepInput& input) {
  StepLoad load;
  for (const StepSpan& span : input.spans) load.Add(span.first_position, span.rows, span.prompt_tokens);
  return load;
}

VirtualExecutor::VirtualExecutor(const VirtualMachine& machine, std::function<void(TimeNs)> pass, EndsAt ends_at)
    : cost_(machine.cost), pass_(std::move(pass)), ends_at_(std::move(ends_at)) {
  description_.model = "virtual";
  description_.kernels = "virtual";
  description_.fingerprint = "virtual";
  description_.vocab_size = kScriptEnd + 1;
  description_.context = machine.context;
  description_.kv_blocks = static_cast<int32_t>(machine.kv_tokens / kBlockTokens);
  description_.rows_max = machine.batch_tokens_max;
  description_.sequences_max = machine.sequences_max;
  description_.logit_rows_max = std::max(machine.sequences_max, 64);
}

Status VirtualExecutor::Submit(const StepInput& input) {
  input_ = &input;
  return {};
}

Result<const StepOutput*> VirtualExecutor::Wait() {
  CHECK(input_ != nullptr);
  output_.results.resize(input_->samples.size());
  for (size_t i = 0; i < input_->samples.size(); ++i) {
    const StepSample& sample = input_->samples[i];
    const uint64_t draw = KeyedRandom(sample.params.seed, sample.position);
    output_.results[i].token = ends_at_ && ends_at_(sample.params.seed, sample.position)
                                   ? kScriptEnd
                                   : kVirtualFirstToken + static_cast<int32_t>(draw % kVirtualTokens);
    output_.results[i].top_count = 0;
  }
  pass_(cost_.Of(LoadOf(*input_)));
  return &output_;
}

}  // namespace headrace
