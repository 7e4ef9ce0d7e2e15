// A model that answers: file, tokenizer, template, executor and engine, built from options. Used by serve and by the
// terminal chat.
#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "base/clock.h"
#include "engine/engine.h"
#include "executor/executor.h"
#include "gateway/preparer.h"
#include "kv_tier/second_tier.h"
#include "model/model_config.h"
#include "server/serve_options.h"
#include "text/chat_template.h"
#include "text/prompt.h"
#include "text/tokenizer.h"
#include "weights/model_file.h"

namespace headrace {

class ModelService {
 public:
  // Blocks while loading. Errors say what, why and what to do next.
  static Result<std::unique_ptr<ModelService>> Load(const ServeOptions& options, const Clock& clock);
  ~ModelService();
  // No step runs after it. Before a LocalBackend over this engine is destroyed: steps ring its bell.
  void Stop() { thread_.reset(); }

  Engine& engine() { return *engine_; }
  const ExecutorDescription& description() const { return executor_->Describe(); }
  const SecondTier& second_tier() const { return second_tier_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Preparer& preparer() const { return *preparer_; }
  int64_t trained_context() const { return trained_context_; }
  // Tokens that fit the KV pool.
  int64_t kv_tokens() const { return int64_t{description().kv_blocks} * kBlockTokens; }
  // What one request may use: the context, or the pool where that is smaller (O-26).
  int64_t served_context() const { return std::min(description().context, kv_tokens()); }
  // What the model's generation_config.json sets where a request sets nothing.
  const SamplingDefaults& sampling_defaults() const { return defaults_; }
  // "weights 97 MiB, KV 360 MiB = 16384 tokens …": what the memory is for.
  std::string MemoryPlan() const;
  // The memory plan, and where the model sets sampling defaults a line of these.
  std::string PlanLines() const;

 private:
  ModelService() = default;
  Status LoadScript(const ServeOptions& options);
  Status LoadModel(const ServeOptions& options);
  Status SetTemplate(const ServeOptions& options, std::string from_model);
  Status StartEngine(const ServeOptions& options, const Clock& clock);

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::unique_ptr<PromptEncoder> prompts_;
  SamplingDefaults defaults_;
  std::unique_ptr<Preparer> preparer_;
  std::unique_ptr<Executor> executor_;
  SecondTier second_tier_;
  std::unique_ptr<DecisionSink> decisions_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<EngineThread> thread_;
  int64_t trained_context_ = 0;
};

// The tokenizer of a model file, from its GGUF arrays or its tokenizer.json.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const ModelFile& file);
// The model's own chat template, "" when it has none.
std::string ModelChatTemplate(const ModelFile& file);
// "sampling defaults of the model: temperature 0.6, top_k 20", "" when it sets none.
std::string SamplingPlan(const SamplingDefaults& defaults);
// Rows of a step that holds prompts alone.
int PromptBatchTokens(const ModelConfig& config);
// KV memory when the user names none: room for sequences_max whole contexts, at most a quarter of what is free, and not
// less than LeastKvBytes: one context of up to 4,096 tokens.
uint64_t LeastKvBytes(const ModelConfig& config, KvType type, int64_t context);
uint64_t DefaultKvBytes(const ModelConfig& config, KvType type, int64_t context, int sequences_max,
                        uint64_t available_bytes);

}  // namespace headrace
