#include "executor/cpu/cpu_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/cpu.h"
#include "base/log.h"
#include "kv_cache/block_pool.h"

namespace headrace {
namespace {

static_assert(kBlockTokens == kPageTokens, "a KV block is one attention page");

// KV pages that are ready before they are used: about ten prompts of a thousand tokens of a small model.
constexpr uint64_t kKvStockBytes = 256ull << 20;
// Raised whenever the bits of Forward or what a seed draws from them change; tests/laws/golden_logits.txt sees the
// former.
constexpr int kNumericsVersion = 4;
// The same for what int8 keys and values are: raised alone, it leaves int16's fingerprints as they are.
constexpr int kInt8KvVersion = 2;

// Chooses the bytes of the KV cache, or says why there is too little memory.
Result<uint64_t> PlanKv(const CpuExecutorOptions& options, const std::string& model, uint64_t weights,
                        uint64_t scratch) {
  const uint64_t available = options.available_bytes > 0 ? options.available_bytes : AvailableMemoryBytes();
  const uint64_t free = available - std::min(available, scratch);
  uint64_t kv = options.kv_bytes;
  if (options.kv_bytes_least > 0)
    kv = std::min(kv, std::max((free - std::min(free, weights)) / 2, options.kv_bytes_least));
  if (weights <= free && kv <= free - weights) return kv;
  return Fail(ErrorCode::kOverloaded,
              fmt::format("{} needs about {} MiB for weights and {} MiB for the KV cache, but only {} MiB are free "
                          "beside {} MiB to compute in. Choose a smaller --kv-memory or --ctx, or a smaller model.",
                          model, weights >> 20, kv >> 20, free >> 20, scratch >> 20),
              "kv-memory");
}

}  // namespace

Result<std::unique_ptr<CpuExecutor>> CpuExecutor::Load(const ModelFile& file, const ModelConfig& config,
                                                       const CpuExecutorOptions& options) {
  HR_ASSIGN_OR_RETURN(const KernelTable* kernels, ChooseKernels(options.isa));
  std::unique_ptr<CpuExecutor> e(new CpuExecutor);
  try {
    e->pool_ = std::make_unique<ComputePool>(options.threads);
  } catch (const std::system_error& failed) {
    return Fail(
        ErrorCode::kOverloaded,
        fmt::format("{} compute threads cannot be started ({}): give fewer by --threads, or raise the limits of "
                    "memory and threads",
                    options.threads, failed.what()),
        "threads");
  }
  const int64_t context = options.context > 0 ? std::min(options.context, config.context) : config.context;
  HR_ASSIGN_OR_RETURN(const std::string weights_hash, file.ContentHash());
  const uint64_t logit_bytes =
      static_cast<uint64_t>(options.logit_rows_max) * static_cast<uint64_t>(config.vocab_size) * sizeof(float);
  uint64_t kv_bytes = 0;
  const auto admit = [&](uint64_t weights, uint64_t scratch) -> Status {
    HR_ASSIGN_OR_RETURN(kv_bytes, PlanKv(options, file.name(), weights, scratch + logit_bytes));
    return {};
  };
  HR_ASSIGN_OR_RETURN(
      e->model_,
      LlamaModel::Load(file, config, *kernels, *e->pool_, {context, options.rows_max, options.logit_rows_max},
                       {.admit = admit, .pack_folder = options.pack_folder, .content_hash = weights_hash}));

  const int64_t block_bytes = config.KvBytesPerToken(options.kv_type) * kBlockTokens;
  const auto blocks = static_cast<int64_t>(kv_bytes) / block_bytes;
  constexpr int64_t kBlocksMax = 1 << 24;
  e->kv_.blocks = std::clamp<int64_t>(blocks, 1, kBlocksMax);
  const auto half = static_cast<uint64_t>(e->kv_.blocks * block_bytes / 2);
  HR_ASSIGN_OR_RETURN(e->k_pages_, HugeBuffer::Allocate(half, "the KV cache"));
  HR_ASSIGN_OR_RETURN(e->v_pages_, HugeBuffer::Allocate(half, "the KV cache"));
  e->kv_.type = options.kv_type;
  e->kv_.k = e->k_pages_.data();
  e->kv_.v = e->v_pages_.data();
  e->populator_ = std::make_unique<PagePopulator>(
      std::vector{std::span(e->k_pages_.data(), half), std::span(e->v_pages_.data(), half)}, kKvStockBytes / 2);

  HR_ASSIGN_OR_RETURN(e->logits_, HugeBuffer::Allocate(logit_bytes, "the logits"));
  for (int w = 0; w < options.threads; ++w)
    e->samplers_.push_back(std::make_unique<Sampler>(config.vocab_size, *kernels));
  e->pool_->Adapt();
  e->spans_.reserve(static_cast<size_t>(options.sequences_max));
  e->logit_rows_.reserve(static_cast<size_t>(options.logit_rows_max));
  e->output_.results.resize(static_cast<size_t>(options.logit_rows_max));

  ExecutorDescription& d = e->description_;
  d.model = config.name;
  d.kernels = kernels->name;
  d.fingerprint = fmt::format("hr{}-{}-{}{}", kNumericsVersion, weights_hash.substr(0, 16),
                              options.kv_type == KvType::kInt16 ? "int16" : fmt::format("int8.{}", kInt8KvVersion),
                              e->model_->long_factors() ? "-long" : "");
  d.vocab_size = config.vocab_size;
  d.context = context;
  d.kv_blocks = static_cast<int32_t>(e->kv_.blocks);
  d.block_bytes = static_cast<uint64_t>(block_bytes);
  d.rows_max = options.rows_max;
  d.logit_rows_max = options.logit_rows_max;
  d.sequences_max = options.sequences_max;
  d.drafts_max = kAttentionRowsMax - 1;  // with the sequence's last token one unit of attention
  d.threads = options.threads;
  d.weight_bytes = e->model_->weight_bytes();
  d.kv_bytes = 2 * half;
  d.scratch_bytes = e->model_->scratch_bytes() + logit_bytes;
  return e;
}

Status CpuExecutor::Submit(const StepInput& input) {
  input_ = &input;
  return {};
}

void CpuExecutor::Forward(const StepInput& input) {
  CHECK_LE(input.samples.size(), static_cast<size_t>(description_.logit_rows_max));
  spans_.clear();
  logit_rows_.clear();
  for (const StepSpan& s : input.spans) spans_.push_back({s.first_row, s.rows, s.first_position, s.first_block});
  for (const StepSample& s : input.samples) logit_rows_.push_back(s.row);
  int32_t last_block = -1;
  for (int32_t block : input.blocks) last_block = std::max(last_block, block);
  populator_->Use(static_cast<uint64_t>(last_block + 1) * description_.block_bytes / 2);
  populator_->SetBusy(true);
  const int workers = pool_->active();
  model_->Forward(*pool_, {input.token_ids, spans_, input.blocks, logit_rows_}, kv_,
                  reinterpret_cast<float*>(logits_.data()));
  populator_->SetBusy(false);
  if (pool_->active() < workers && !crowded_) {
    crowded_ = true;
    LOG_INFO(
        "other processes take the processors of {} compute threads: waiting for one costs more than it gives, so "
        "fewer compute while that lasts. Leave Headrace processors of its own, or give fewer by --threads.",
        description_.threads);
  }
}

Result<const float*> CpuExecutor::ForwardOnly(const StepInput& input) {
  Forward(input);
  return reinterpret_cast<const float*>(logits_.data());
}

Result<const StepOutput*> CpuExecutor::Wait() {
  CHECK(input_ != nullptr);
  const StepInput& input = *input_;
  input_ = nullptr;
  Forward(input);
  output_.results.resize(input.samples.size());
  auto* logits = reinterpret_cast<float*>(logits_.data());
  if (observer_) observer_(input, logits);
  SampleAll(input, logits);
  return &output_;
}

// The keys of a block lie together, and so do its values: [keys][values].
void CpuExecutor::ReadBlock(int32_t block, std::span<std::byte> out) const {
  CHECK_EQ(out.size(), description_.block_bytes);
  const size_t half = out.size() / 2;
  const size_t at = static_cast<size_t>(block) * half;
  std::memcpy(out.data(), kv_.k + at, half);
  std::memcpy(out.data() + half, kv_.v + at, half);
}

void CpuExecutor::WriteBlock(int32_t block, std::span<const std::byte> bytes) {
  CHECK_EQ(bytes.size(), description_.block_bytes);
  CHECK_LT(block, description_.kv_blocks);
  const size_t half = bytes.size() / 2;
  const size_t at = static_cast<size_t>(block) * half;
  std::memcpy(kv_.k + at, bytes.data(), half);
  std::memcpy(kv_.v + at, bytes.data() + half, half);
}

void CpuExecutor::SampleAll(const StepInput& input, float* logits) {
  const auto sample = [&](int worker, int64_t i, ComputePool* pool) {
    const StepSample& s = input.samples[static_cast<size_t>(i)];
    const std::span adjustments =
        std::span(input.adjustments)
            .subspan(static_cast<size_t>(s.first_adjustment), static_cast<size_t>(s.adjustment_count));
    samplers_[static_cast<size_t>(worker)]->Sample(
        logits + i * description_.vocab_size,
        {s.params, s.position, adjustments, MaskOf(input, s, description_.vocab_size), s.target, s.top_logprobs},
        &output_.results[static_cast<size_t>(i)], pool);
  };
  // Each worker has rows of its own while there are enough. What is left over the workers share, row by row, when that
  // takes less than one row by one worker: a shared row is 1 / workers of it, and an eighth for barriers.
  const auto samples = static_cast<int64_t>(input.samples.size());
  const int workers = pool_->active();
  const int64_t rest = samples % workers;
  const bool shared = description_.vocab_size >= kSharedRowMin && rest * (8 + workers) < 8 * workers;
  const int64_t whole = shared ? samples - rest : samples;
  if (whole > 0) {
    pool_->Run([&](int worker) { pool_->For(worker, whole, [&](int64_t i) { sample(worker, i, nullptr); }); });
  }
  for (int64_t i = whole; i < samples; ++i) sample(0, i, pool_.get());
}

}  // namespace headrace
