// Goal, the first law: every logit and every token of a request is the same to the bit whatever else happens: batch,
// chunk size, threads, instruction set, arrival order, preemption, cancelled neighbours (field fault O-12).
//
// In CI: a seeded model of each family, a seeded llama of four layers with grouped KV heads, odd widths and every
// compute type against the scalar reference; and the default model (HEADRACE_TEST_MODEL) across the fast instruction
// sets. HEADRACE_LAWS=whole runs the default model against the reference too (a campaign: it takes an hour).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "engine/engine.h"
#include "executor/cpu/cpu_executor.h"
#include "executor/scripted/script.h"
#include "model/seeded_llama.h"

namespace headrace {
namespace {

constexpr int64_t kLengths[] = {1, 63, 64, 65, 127, 128, 129, 513, 2000, 5, 17, 33, 40, 70, 90, 100};

struct Prompt {
  std::vector<int32_t> ids;
  int64_t max_tokens;
  SamplingParams sampling;
  std::vector<std::pair<int32_t, float>> logit_bias;
};

// What one request was answered: tokens and a hash of every row of logits that produced one.
struct Answer {
  std::vector<int32_t> tokens;
  std::map<uint64_t, uint64_t> logits;  // by position
  bool operator==(const Answer&) const = default;
};

uint64_t HashOf(const float* row, int32_t n) {
  uint64_t hash = 0;
  for (int32_t i = 0; i < n; ++i) hash = SplitMix64(hash ^ std::bit_cast<uint32_t>(row[i]));
  return hash;
}

// The engine needs a tokenizer for bytes and end tokens only, and every request ignores end tokens.
std::unique_ptr<Tokenizer> PlainTokenizer() {
  auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary(Script{}));
  EXPECT_TRUE(tokenizer);
  return std::move(*tokenizer);
}

std::vector<Prompt> MakePrompts(size_t count, int32_t vocab_size, int64_t longest, int64_t new_tokens) {
  Random random(42);
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < count; ++i) {
    Prompt p;
    const int64_t length =
        std::min(longest, kLengths[i % std::size(kLengths)] +
                              (i >= std::size(kLengths) ? static_cast<int64_t>(random.Below(9)) : 0));
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
    engine_ = std::make_unique<Engine>(*executor_, *tokenizer_, clock_,
                                       EngineOptions{.waiting_max = 256, .check_integrity = true});
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

 private:
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
  std::unique_ptr<Engine> engine_;
  std::map<uint64_t, size_t> owner_;
  std::vector<Answer> answers_;
  std::vector<std::shared_ptr<EngineStream>> streams_;
};

std::string Describe(const Setting& s) {
  return s.isa + " threads=" + std::to_string(s.threads) + " rows=" + std::to_string(s.rows_max) +
         " kv=" + std::to_string(s.kv_tokens) + " disorder=" + std::to_string(s.disorder);
}

void ExpectSame(const std::vector<Answer>& truth, const std::vector<Answer>& other, const std::string& what) {
  for (size_t i = 0; i < truth.size(); ++i) {
    ASSERT_EQ(other[i].tokens, truth[i].tokens) << what << " request " << i;
    ASSERT_EQ(other[i].logits, truth[i].logits) << what << " request " << i;
    ASSERT_FALSE(truth[i].tokens.empty());
  }
}

TEST(SameAnswerTest, SeededLlamaOfEveryTypeOnEveryInstructionSet) {
  const auto bytes =
      BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0,
                                  DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ2_K,
                                  DType::kQ3_K, DType::kIQ4_NL, DType::kMXFP4}});
  const auto file = OpenSeededLlama(bytes);
  const auto prompts = MakePrompts(16, 330, 140, 12);
  Runner reference(*file, {.isa = "reference"});
  const auto truth = reference.Run(prompts);
  for (const KernelTable* table : UsableKernels()) {
    for (const Setting& s : {Setting{table->name, 2, 7, 1 << 12, 5}, Setting{table->name, 1, 64, 512, 6}}) {
      Runner runner(*file, s);
      ExpectSame(truth, runner.Run(prompts), Describe(s));
      if (s.kv_tokens == 512) {
        EXPECT_GT(runner.preemptions(), 0u) << "the pool is small enough to preempt";
      }
    }
  }
}

TEST(SameAnswerTest, SeededModelsOfEveryFamilyOnEveryInstructionSet) {
  for (const Family* family : Families()) {
    if (family->architecture.empty() || family->name == "llama") continue;  // the test above covers llama
    const auto bytes = BuildSeededLlama({.architecture = std::string(family->architecture),
                                         .layers = 7,  // Gemma's sixth sees everything
                                         .width = 96,
                                         .ffn_width = 160,
                                         .head_dim = 32,
                                         .context = 512,
                                         .window = 48,
                                         .types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kF16}});
    const auto file = OpenSeededLlama(bytes);
    const auto prompts = MakePrompts(10, 330, 140, 8);
    const auto truth = Runner(*file, {.isa = "reference"}).Run(prompts);
    for (const KernelTable* table : UsableKernels()) {
      for (const Setting& s : {Setting{table->name, 2, 7, 1 << 12, 5}, Setting{table->name, 1, 64, 512, 6}}) {
        Runner runner(*file, s);
        ExpectSame(truth, runner.Run(prompts), std::string(family->name) + " " + Describe(s));
      }
    }
  }
}

// A seed that is ignored because a neighbour has none, a penalty or a bias that shifts a neighbour's scores.
TEST(SameAnswerTest, O12SeedsPenaltiesAndBiasesOfNeighboursChangeNothing) {
  const auto bytes = BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0}});
  const auto file = OpenSeededLlama(bytes);
  const char* best = UsableKernels().back()->name;
  std::vector<Prompt> prompts = MakePrompts(6, 330, 100, 1);
  for (Prompt& p : prompts) p.max_tokens = 24;
  prompts[0].sampling = {.temperature = 0.8f, .seed = 42};
  prompts[1].sampling = {.temperature = 0};
  prompts[3].sampling = {.temperature = 0, .frequency_penalty = 1.05f};
  prompts[4].sampling = {.temperature = 0};
  const auto alone = Runner(*file, {.isa = best}).Run(prompts);
  for (const int32_t token : alone[4].tokens) prompts[4].logit_bias.emplace_back(token, kBanBias);
  prompts[5].sampling = {.temperature = 0.8f, .presence_penalty = 2.0f, .repetition_penalty = 1.5f, .seed = 42};
  for (uint64_t run = 1; run <= 20; ++run) {
    prompts[2].sampling = {.temperature = 1, .seed = run * 7919};  // drawn anew, as for a request without a seed
    const auto together = Runner(*file, {.isa = best, .threads = 2, .disorder = run}).Run(prompts);
    for (const size_t i : {0u, 1u}) ASSERT_EQ(together[i], alone[i]) << "request " << i << ", run " << run;
    for (const int32_t token : together[4].tokens) ASSERT_EQ(std::ranges::count(alone[4].tokens, token), 0);
  }
}

TEST(SameAnswerTest, ThirtyTwoPromptsOnTheFastTypes) {
  const auto bytes = BuildSeededLlama({.width = 288,
                                       .ffn_width = 544,
                                       .heads = 6,
                                       .kv_heads = 2,
                                       .head_dim = 64,
                                       .types = {DType::kQ4_1, DType::kQ8_0, DType::kQ4_1, DType::kF32},
                                       .tied = false});
  const auto file = OpenSeededLlama(bytes);
  const auto prompts = MakePrompts(36, 330, 2000, 24);
  const char* best = UsableKernels().back()->name;
  Runner whole(*file, {.isa = best, .rows_max = 2048});
  const auto truth = whole.Run(prompts);
  std::vector<Setting> settings = {{best, 1, 1, 1 << 14, 0}};
  for (const KernelTable* table : UsableKernels()) {
    if (std::string_view(table->name) == "reference") continue;  // the test above covers it
    settings.push_back({table->name, 2, 7, 1 << 14, 1});
    settings.push_back({table->name, 1, 64, 3000, 2});
    settings.push_back({table->name, 2, 2048, 1 << 14, 3});
  }
  for (const Setting& s : settings) {
    Runner runner(*file, s);
    ExpectSame(truth, runner.Run(prompts), Describe(s));
  }
}

TEST(SameAnswerTest, TheDefaultModelAcrossTheFastInstructionSets) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name the default model's file (./dev test sets it)";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const char* laws = std::getenv("HEADRACE_LAWS");
  const bool whole = laws != nullptr && std::string_view(laws) == "whole";
  const auto prompts = MakePrompts(whole ? 32 : 9, 49152, whole ? 2000 : 140, 6);
  const char* best = UsableKernels().back()->name;
  Runner first(**file, {.isa = best, .threads = 2});
  const auto truth = first.Run(prompts);
  for (const KernelTable* table : UsableKernels()) {
    const bool slow = std::string_view(table->name) == "reference";
    if (slow && !whole) continue;
    for (const Setting& s : {Setting{table->name, 2, 64, 1 << 12, 7}, Setting{table->name, 1, 7, 1 << 12, 8}}) {
      Runner runner(**file, s);
      ExpectSame(truth, runner.Run(prompts), Describe(s));
    }
  }
}

}  // namespace
}  // namespace headrace
