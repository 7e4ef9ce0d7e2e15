// Requests through a whole engine under one setting, for the first law: what each is answered, to the bit. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "executor/cpu/cpu_executor.h"
#include "executor/scripted/script.h"
#include "model/seeded_llama.h"

namespace headrace {

constexpr int64_t kPromptLengths[] = {1, 63, 64, 65, 127, 128, 129, 513, 2000, 5, 17, 33, 40, 70, 90, 100};

struct Prompt {
  std::vector<int32_t> ids;
  int64_t max_tokens;
  SamplingParams sampling;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

// Layers with windows and without, small.
inline SeededLlama SeededGemmaWithWindows() {
  return {.architecture = "gemma3",
          .layers = 7,
          .width = 96,
          .ffn_width = 160,
          .head_dim = 32,
          .context = 512,
          .window = 48,
          .types = {DType::kQ4_1, DType::kQ8_0}};
}

// HEADRACE_LAWS=whole: a campaign's prompts and not CI's.
inline bool LawsAreWhole() {
  const char* laws = std::getenv("HEADRACE_LAWS");
  return laws != nullptr && std::string_view(laws) == "whole";
}

// What one request was answered: tokens and a hash of every row of logits that produced one.
struct Answer {
  std::vector<int32_t> tokens;
  std::map<uint64_t, uint64_t> logits;  // by position
  bool operator==(const Answer&) const = default;
};

inline uint64_t HashOf(const float* row, int32_t n) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < n; ++i) hash = SplitMix64(hash ^ std::bit_cast<uint32_t>(row[i]));
  return hash;
}

// The engine needs a tokenizer for bytes and end tokens only, and every request ignores end tokens.
inline std::unique_ptr<Tokenizer> PlainTokenizer() {
  auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary(Script{}));
  EXPECT_TRUE(tokenizer);
  return std::move(*tokenizer);
}

inline std::vector<Prompt> MakePrompts(size_t count, int32_t vocab_size, int64_t longest, int64_t new_tokens) {
  Random random(42);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < count; ++i) {
    Prompt p;
    const int64_t length =
        std::min(longest, kPromptLengths[i % std::size(kPromptLengths)] +
                              (i >= std::size(kPromptLengths) ? static_cast<int64_t>(random.Below(9)) : 0));
    for (int64_t t = 0; t < length; ++t)
      p.ids.push_back(static_cast<int32_t>(random.Below(static_cast<uint64_t>(vocab_size))));
    p.max_tokens = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(new_tokens)));
    p.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    p.sampling.top_p = i % 4 == 1 ? 0.9f : 1.0f;
    p.sampling.frequency_penalty = i % 5 == 2 ? 0.3f : 0.0f;
    p.sampling.seed = i;
    prompts.push_back(std::move(p));
  }
  return prompts;
}

struct Setting {
  std::string isa;
  int threads = 1;
  int32_t rows_max = 512;
  int64_t kv_tokens = 1 << 14;
  uint64_t disorder = 0;  // 0: one request after another; else the seed of arrivals and cancels
  KvType kv_type = KvType::kInt16;
  bool prefix_cache = true;
  int32_t drafts_max = 0;
  bool wrong_block = false;  // a fault: who begins with cached blocks gets another one for its first
  int64_t memory_tier_blocks = 0;
  std::string cache_folder = {};  // of a tier on disk; "": none
  bool wrong_restore = false;     // a fault: a restored block has one byte that it did not have
};

// An executor whose caller gave a request the wrong cached block, or a block the wrong bytes.
class WrongBlockExecutor final : public Executor {
 public:
  WrongBlockExecutor(Executor& executor, bool wrong_block, bool wrong_restore)
      : executor_(executor), wrong_block_(wrong_block), wrong_restore_(wrong_restore) {}
  const ExecutorDescription& Describe() const override { return executor_.Describe(); }
  Status Submit(const StepInput& input) override {
    input_ = input;
    for (const StepSpan& span : input.spans) {
      if (seen_.insert(span.request).second && span.first_position > 0) wronged_.insert(span.request);
      int32_t& first = input_.blocks[static_cast<size_t>(span.first_block)];
      if (wrong_block_ && wronged_.contains(span.request)) first = (first + 1) % Describe().kv_blocks;
    }
    return executor_.Submit(input_);
  }
  Result<const StepOutput*> Wait() override { return executor_.Wait(); }
  void ReadBlock(int32_t block, std::span<std::byte> out) const override { executor_.ReadBlock(block, out); }
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override {
    std::vector<std::byte> written(bytes.begin(), bytes.end());
    if (wrong_restore_) written[3] ^= std::byte{0x20};
    executor_.WriteBlock(block, written);
  }

 private:
  Executor& executor_;
  const bool wrong_block_, wrong_restore_;
  StepInput input_;
  std::set<uint64_t> seen_, wronged_;
};

class Runner {
 public:
  Runner(const ModelFile& file, const Setting& setting) : setting_(setting), tokenizer_(PlainTokenizer()) {
    const ModelConfig config = *ReadModelConfig(file);
    CpuExecutorOptions options{.threads = setting.threads,
                               .isa = setting.isa,
                               .kv_type = setting.kv_type,
                               .rows_max = setting.rows_max,
                               .logit_rows_max = 16,
                               .sequences_max = 12};
    options.kv_bytes = static_cast<uint64_t>(config.KvBytesPerToken(setting.kv_type) * setting.kv_tokens);
    auto executor = CpuExecutor::Load(file, config, options);
    EXPECT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
    executor_->ObserveLogits([this](const StepInput& input, const float* logits) { Observe(input, logits); });
    wrong_ = std::make_unique<WrongBlockExecutor>(*executor_, setting.wrong_block, setting.wrong_restore);
    const bool wrong = setting.wrong_block || setting.wrong_restore;
    Executor& used = wrong ? static_cast<Executor&>(*wrong_) : *executor_;
    OpenTiers();
    const EngineOptions engine{.waiting_max = 256,
                               .check_integrity = true,
                               .prefix_cache = setting.prefix_cache,
                               .room_ahead = false,   // so that requests are preempted
                               .itl_target = kNever,  // chunks as the setting has them
                               .drafts_max = setting.drafts_max,
                               .second_tier = &tier_};
    engine_ = std::make_unique<Engine>(used, *tokenizer_, clock_, engine);
  }

  std::vector<Answer> Run(const std::vector<Prompt>& prompts) {
    answers_.assign(prompts.size(), {});
    streams_.assign(prompts.size(), nullptr);
    setting_.disorder == 0 ? RunAlone(prompts) : RunTogether(prompts);
    for (size_t i = 0; i < prompts.size(); ++i) {
      for (TokenEvent event; streams_[i]->Pop(event);) {
        if (event.token >= 0) answers_[i].tokens.push_back(event.token);
      }
    }
    return answers_;
  }
  uint64_t preemptions() const { return engine_->stats().preemptions.load(); }
  uint64_t drafted_tokens() const { return engine_->stats().drafted_tokens.load(); }
  uint64_t accepted_tokens() const { return engine_->stats().accepted_tokens.load(); }
  uint64_t steps() const { return engine_->stats().steps.load(); }
  const SecondTier& tier() const { return tier_; }
  uint64_t prefix_hit_tokens() const { return engine_->stats().prefix_hit_tokens.load(); }

 private:
  void OpenTiers() {
    const ExecutorDescription& d = executor_->Describe();
    if (setting_.memory_tier_blocks > 0)
      tier_.memory =
          *MemoryTier::Make(static_cast<uint64_t>(setting_.memory_tier_blocks) * d.block_bytes, d.block_bytes);
    if (setting_.cache_folder.empty()) return;
    static const DeploymentKey key = DeploymentKey::Draw();
    auto folder = BlockFolder::Open(*OpenFolder(setting_.cache_folder),
                                    std::make_unique<BlockSeal>(key, d.fingerprint, d.block_bytes), 1 << 30);
    EXPECT_TRUE(folder) << folder.error().message;
    tier_.disk = *DiskTier::Make(std::move(*folder), clock_);
    tier_.virtual_disk_took = kNsPerMs;
  }
  void Observe(const StepInput& input, const float* logits) {
    for (size_t s = 0; s < input.samples.size(); ++s) {
      const auto it = owner_.find(input.spans[static_cast<size_t>(input.samples[s].span)].request);
      if (it == owner_.end()) continue;
      const int32_t vocab = executor_->Describe().vocab_size;
      answers_[it->second].logits[input.samples[s].position] = HashOf(logits + static_cast<int64_t>(s) * vocab, vocab);
    }
  }
  std::shared_ptr<EngineStream> Submit(const Prompt& prompt) {
    auto request = std::make_unique<EngineRequest>();
    request->prompt = prompt.ids;
    request->max_tokens = prompt.max_tokens;
    request->sampling = prompt.sampling;
    request->logit_bias = prompt.logit_bias;
    request->ignore_eos = true;
    auto stream = engine_->Submit(std::move(request), nullptr);
    EXPECT_TRUE(stream) << stream.error().message;
    return *stream;
  }
  void Start(const std::vector<Prompt>& prompts, size_t i) {
    streams_[i] = Submit(prompts[i]);
    owner_[streams_[i]->id()] = i;
  }
  bool Step() {
    clock_.Advance(10 * kNsPerMs);
    return engine_->Step(clock_.Now()) != kNever;
  }
  void RunAlone(const std::vector<Prompt>& prompts) {
    for (size_t i = 0; i < prompts.size(); ++i) {
      Start(prompts, i);
      while (Step()) {
      }
    }
  }
  // Arrivals in random order and at random steps; one in three brings a neighbour that is cancelled later.
  void RunTogether(const std::vector<Prompt>& prompts) {
    Random random(setting_.disorder);
    std::vector<size_t> order(prompts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
    std::vector<std::shared_ptr<EngineStream>> neighbours;
    size_t started = 0;
    while (true) {
      while (started < order.size() && random.Below(3) != 0) {
        Start(prompts, order[started++]);
        if (random.Below(3) == 0) {
          Prompt neighbour = prompts[random.Below(prompts.size())];
          neighbour.max_tokens = 40;
          neighbours.push_back(Submit(neighbour));
        }
      }
      const bool busy = Step();
      if (!neighbours.empty() && random.Below(4) == 0) {
        neighbours.back()->Cancel();
        neighbours.pop_back();
      }
      if (!busy && started == order.size()) return;
    }
  }

  const Setting setting_;
  std::unique_ptr<Tokenizer> tokenizer_;
  VirtualClock clock_;
  std::unique_ptr<CpuExecutor> executor_;
  std::unique_ptr<WrongBlockExecutor> wrong_;
  SecondTier tier_;
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, size_t> owner_;
  std::vector<Answer> answers_;
  std::vector<std::shared_ptr<EngineStream>> streams_;
};

inline std::string Describe(const Setting& s) {
  return s.isa + " threads=" + std::to_string(s.threads) + " rows=" + std::to_string(s.rows_max) +
         " kv=" + std::to_string(s.kv_tokens) + " disorder=" + std::to_string(s.disorder);
}

inline void ExpectSame(const std::vector<Answer>& truth, const std::vector<Answer>& other, const std::string& what) {
  for (size_t i = 0; i < truth.size(); ++i) {
    ASSERT_EQ(other[i].tokens, truth[i].tokens) << what << " request " << i;
    ASSERT_EQ(other[i].logits, truth[i].logits) << what << " request " << i;
    ASSERT_FALSE(truth[i].tokens.empty());
  }
}

}  // namespace headrace
