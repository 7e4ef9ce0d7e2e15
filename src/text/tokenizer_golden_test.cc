// Goal: the ids equal those of the reference libraries (tokenizers, sentencepiece) on 10,000 generated lines in many
// scripts, code, emoji and control-token text, and on long runs, for every pre-tokenizer kind and for real
// vocabularies where they can be had. tests/text/make_goldens.py made the goldens.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "text/golden_corpus.h"
#include "text/test_vocabulary.h"
#include "text/tokenizer.h"

namespace headrace {
namespace {

constexpr EncodeOptions kParse{.parse_special = true, .add_special = false};
constexpr EncodeOptions kPlain{.parse_special = false, .add_special = false};

void ExpectGolden(const std::string& name, const Tokenizer& tokenizer, EncodeOptions options) {
  std::vector<std::string> golden;
  std::istringstream in(TestFile("goldens/" + name + ".txt"));
  for (std::string line; std::getline(in, line);) golden.push_back(line);
  const GoldenCorpus corpus(TestFile("samples.txt"));
  const std::vector<std::string> hashes = corpus.Hashes([&](const std::string& line) {
    auto ids = tokenizer.Encode(line, options);
    EXPECT_TRUE(ids.has_value()) << ids.error().message;
    return ids.value_or(std::vector<int32_t>{});
  });
  ASSERT_EQ(hashes.size(), golden.size());
  size_t wrong = 0;
  for (size_t i = 0; i < hashes.size(); ++i) wrong += hashes[i] != golden[i];
  EXPECT_EQ(wrong, 0u) << name << ": blocks of 100 lines that differ, of " << golden.size();
}

class TinyBytePairs : public testing::TestWithParam<const char*> {};

TEST_P(TinyBytePairs, IdsEqualTheReference) {
  Vocabulary vocabulary = FixtureVocabulary("tiny_bpe");
  vocabulary.pre = GetParam();
  auto tokenizer = Tokenizer::FromVocabulary(std::move(vocabulary));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  ExpectGolden(std::string("tiny_bpe.") + GetParam(), **tokenizer, kParse);
}

INSTANTIATE_TEST_SUITE_P(EveryPre, TinyBytePairs,
                         testing::Values("smollm", "gpt-2", "llama-bpe", "qwen2", "default", "deepseek-llm",
                                         "deepseek-coder", "deepseek-v3", "refact", "tekken"));

TEST(TokenizerGolden, TinySentencePieceIdsEqualTheReference) {
  auto tokenizer = Tokenizer::FromVocabulary(FixtureVocabulary("tiny_sp"));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  ExpectGolden("tiny_sp", **tokenizer, kPlain);
}

TEST(TokenizerGolden, SmolLM2IdsEqualTheReference) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name SmolLM2-135M-Instruct.Q4_1.gguf";
  auto model = ReadTestModel(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  if (model->vocabulary.pre != "smollm") GTEST_SKIP() << "HEADRACE_TEST_MODEL is not SmolLM2; the golden is for it";
  auto tokenizer = Tokenizer::FromVocabulary(std::move(model->vocabulary));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  ExpectGolden("smollm2", **tokenizer, kParse);
}

TEST(TokenizerGolden, Gemma3IdsEqualTheReference) {
  const char* path = std::getenv("HEADRACE_TEST_GEMMA");
  if (path == nullptr) GTEST_SKIP() << "HEADRACE_TEST_GEMMA does not name gemma-3-270m-q4_k_m.gguf";
  auto model = ReadTestModel(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  auto tokenizer = Tokenizer::FromVocabulary(std::move(model->vocabulary));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  ExpectGolden("gemma3", **tokenizer, kPlain);
}

// The authors' own tokenizer.json files, read as they are and through the arrays that a converter makes of them.
struct Original {
  const char* name;
  const char* pre;  // "" when the file is not byte-level
};
class Originals : public testing::TestWithParam<Original> {};

TEST_P(Originals, IdsEqualTheReference) {
  const char* folder = std::getenv("HEADRACE_TEST_TOKENIZERS");
  if (folder == nullptr) GTEST_SKIP() << "HEADRACE_TEST_TOKENIZERS does not name a folder with NAME/tokenizer.json";
  const std::string path = std::string(folder) + "/" + GetParam().name + "/tokenizer.json";
  auto json = ReadWholeFile(path, kTokenizerJsonBytesMax);
  if (!json) GTEST_SKIP() << GetParam().name << ": " << json.error().message;
  const std::string golden = std::string("original.") + GetParam().name;
  auto from_json = Tokenizer::FromJson(*json, "");
  ASSERT_TRUE(from_json.has_value()) << from_json.error().message;
  ExpectGolden(golden, **from_json, kParse);
  if (std::string(GetParam().pre).empty()) return;
  auto from_arrays = Tokenizer::FromVocabulary(VocabularyFromJson(*json, GetParam().pre));
  ASSERT_TRUE(from_arrays.has_value()) << from_arrays.error().message;
  ExpectGolden(golden, **from_arrays, kParse);
}

INSTANTIATE_TEST_SUITE_P(All, Originals,
                         testing::Values(Original{"gpt2", "gpt-2"}, Original{"llama3", "llama-bpe"},
                                         Original{"qwen2_5", "qwen2"}, Original{"deepseek_v3", "deepseek-v3"},
                                         Original{"gemma", ""}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace headrace
