// Goal: the first law with drafts: tokens and logits are the same to the bit with speculation and without, greedy and
// drawn, under penalties, beside others and preempted; and drafts are really tried: right ones on seeded models, which
// repeat themselves for ever, and wrong ones, too, on the default model.
//
// HEADRACE_LAWS=whole takes a thousand prompts of the default model (a campaign), CI two dozen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "laws/runner.h"
#include "text/test_vocabulary.h"

namespace headrace {
namespace {

// Prompts that repeat themselves, so that there is something to look up.
std::vector<Prompt> RepeatingPrompts(size_t count, int32_t vocab_size, int64_t new_tokens) {
  std::vector<Prompt> prompts = MakePrompts(count, vocab_size, 60, new_tokens);
  for (Prompt& p : prompts) {
    const std::vector<int32_t> once = p.ids;
    for (int i = 0; i < 2; ++i) p.ids.insert(p.ids.end(), once.begin(), once.end());
    p.max_tokens = new_tokens;
  }
  return prompts;
}

struct Drafts {
  uint64_t drafted = 0, accepted = 0;
};

// A line takes no thousand at once.
std::vector<Answer> RunInParts(Runner& runner, const std::vector<Prompt>& prompts) {
  constexpr size_t kPart = 40;
  std::vector<Answer> answers;
  for (size_t first = 0; first < prompts.size(); first += kPart) {
    const auto from = prompts.begin() + static_cast<int64_t>(first);
    const auto count = static_cast<int64_t>(std::min(kPart, prompts.size() - first));
    const std::vector<Answer> part = runner.Run(std::vector<Prompt>(from, from + count));
    answers.insert(answers.end(), part.begin(), part.end());
  }
  return answers;
}

Drafts ExpectTheLaw(const ModelFile& file, const std::vector<Prompt>& prompts, const char* isa, KvType kv_type,
                    const std::vector<Setting>& settings) {
  Runner first(file, settings[0]);
  const auto truth = RunInParts(first, prompts);
  Drafts drafts;
  for (const Setting& plain : settings) {
    Setting s = plain;
    s.isa = isa;
    s.kv_type = kv_type;
    s.drafts_max = 15;
    Runner runner(file, s);
    ExpectSame(truth, RunInParts(runner, prompts), "drafts, " + Describe(s));
    drafts.drafted += runner.drafted_tokens();
    drafts.accepted += runner.accepted_tokens();
    if (s.kv_tokens == 512) {
      EXPECT_GT(runner.preemptions(), 0u) << "the pool is small enough to preempt";
    }
  }
  return drafts;
}

TEST(SpeculationLawTest, SeededLlama) {
  const auto bytes = BuildSeededLlama({.types = {DType::kQ4_1, DType::kQ8_0, DType::kF32, DType::kQ4_K}});
  const auto file = OpenSeededLlama(bytes);
  for (const KernelTable* table : UsableKernels()) {
    const char* isa = table->name;
    const bool slow = std::string_view(isa) == "reference";
    const auto prompts = RepeatingPrompts(slow ? 3 : 16, 330, slow ? 20 : 60);
    for (const KvType kv_type : {KvType::kInt16, KvType::kInt8}) {
      std::vector<Setting> settings = {{.isa = isa, .kv_type = kv_type}};
      if (!slow) {
        settings.push_back({.isa = isa, .threads = 2, .rows_max = 40, .kv_tokens = 1 << 12, .disorder = 3});
        settings.push_back({.isa = isa, .rows_max = 64, .kv_tokens = 512, .disorder = 4});
      }
      const Drafts drafts = ExpectTheLaw(*file, prompts, isa, kv_type, settings);
      if (slow) continue;
      EXPECT_GT(drafts.accepted, 100u) << isa;
    }
  }
}

// A window's start moves with every row.
TEST(SpeculationLawTest, SeededGemmaWithWindows) {
  const auto bytes = BuildSeededLlama(SeededGemmaWithWindows());
  const auto file = OpenSeededLlama(bytes);
  const char* isa = UsableKernels().back()->name;
  const Drafts drafts = ExpectTheLaw(*file, RepeatingPrompts(16, 330, 60), isa, KvType::kInt16,
                                     {{.isa = isa}, {.isa = isa, .threads = 2, .disorder = 3}});
  EXPECT_GT(drafts.accepted, 50u);
}

// Pieces of a text, each with its first half once more.
std::vector<Prompt> TextPrompts(const std::string& path, size_t count, int64_t new_tokens) {
  auto model = ReadTestModel(path);
  EXPECT_TRUE(model) << model.error().message;
  const auto tokenizer = Tokenizer::FromVocabulary(std::move(model->vocabulary));
  EXPECT_TRUE(tokenizer);
  std::ifstream file(HEADRACE_SOURCE_DIR "/benchmarks/quality/text.txt");
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<int32_t> ids = *(*tokenizer)->Encode(text.str(), {});
  Random random(11);
  std::vector<Prompt> prompts(count);
  for (size_t i = 0; i < count; ++i) {
    Prompt& p = prompts[i];
    const size_t length = 16 + random.Below(64), from = random.Below(ids.size() - length);
    const auto first = ids.begin() + static_cast<int64_t>(from);
    p.ids.assign(first, first + static_cast<int64_t>(length));
    p.ids.insert(p.ids.end(), first, first + static_cast<int64_t>(length / 2));
    p.max_tokens = new_tokens;
    p.sampling.seed = i;
    p.sampling.temperature = i % 2 == 0 ? 0.0f : 0.7f;
    if (i % 4 == 3) p.sampling.top_p = 0.9f;
    if (i % 8 >= 6) p.sampling.repetition_penalty = 1.1f;
  }
  return prompts;
}

TEST(SpeculationLawTest, TheDefaultModel) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name the default model's file (./dev test sets it)";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const bool whole = LawsAreWhole();
  const char* isa = UsableKernels().back()->name;
  const auto prompts = TextPrompts(path, whole ? 1000 : 24, whole ? 32 : 24);
  const Setting together{.isa = isa, .threads = 2, .rows_max = 128, .disorder = 5};
  const Drafts drafts =
      whole ? ExpectTheLaw(**file, prompts, isa, KvType::kInt16, {together})
            : ExpectTheLaw(**file, prompts, isa, KvType::kInt16, {{.isa = isa, .threads = 2}, together});
  std::printf("%zu prompts: %llu drafts, %llu accepted\n", prompts.size(),
              static_cast<unsigned long long>(drafts.drafted), static_cast<unsigned long long>(drafts.accepted));
  EXPECT_GT(drafts.accepted, prompts.size());
  EXPECT_GT(drafts.drafted, drafts.accepted + prompts.size());
}

}  // namespace
}  // namespace headrace
