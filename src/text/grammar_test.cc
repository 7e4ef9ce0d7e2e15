// Goal: masks let through exactly what a grammar means: every mask allows a token, whatever is drawn from masks is an
// instance of the schema, an instance is never refused; clones go on alone; bad grammars are refused with the cause.
#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "base/random.h"
#include "text/test_vocabulary.h"

namespace headrace {
namespace {

using testing::HasSubstr;

std::unique_ptr<Tokenizer> TinyTokenizer() {
  auto tokenizer = Tokenizer::FromVocabulary(FixtureVocabulary("tiny_bpe"));
  EXPECT_TRUE(tokenizer.has_value());
  return std::move(*tokenizer);
}

constexpr char kPerson[] = R"({"type":"object","properties":{"name":{"type":"string","maxLength":6},
  "age":{"type":"integer","minimum":0,"maximum":99},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":3}},
  "required":["name","age","tags"],"additionalProperties":false})";

std::vector<int32_t> TokensOf(std::span<const uint32_t> mask, int32_t vocab) {
  std::vector<int32_t> out;
  for (int32_t t = 0; t < vocab; ++t) {
    if (MaskAllows(mask, t)) out.push_back(t);
  }
  return out;
}

// Draws evenly from the masks; the text, or nothing if it did not end within `most` tokens.
std::string Draw(const Tokenizer& tokenizer, Grammar& grammar, Random& random, int most) {
  std::vector<uint32_t> mask(MaskWords(tokenizer.vocab_size()));
  std::string text;
  for (int i = 0; i < most; ++i) {
    if (!grammar.Mask(mask)) ADD_FAILURE() << "no mask behind " << text;
    const std::vector<int32_t> allowed = TokensOf(mask, tokenizer.vocab_size());
    if (allowed.empty()) {
      ADD_FAILURE() << "nothing is allowed behind " << text;
      return "";
    }
    const bool may_end = std::ranges::find(allowed, tokenizer.eos()) != allowed.end();
    if (may_end) return text;
    const int32_t token = allowed[random.Below(allowed.size())];
    text += tokenizer.TokenBytes(token);
    if (!grammar.Commit(token)) ADD_FAILURE() << "refused behind " << text;
    if (grammar.done()) return text;
  }
  return "";
}

TEST(GrammarTest, WhatIsDrawnFromTheMasksIsAnInstance) {
  const auto tokenizer = TinyTokenizer();
  const auto grammar = Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, kPerson);
  ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
  Random random(7);
  int whole = 0;
  for (int i = 0; i < 100; ++i) {
    auto one = (*grammar)->Clone();
    ASSERT_TRUE(one.has_value());
    const std::string text = Draw(*tokenizer, **one, random, 400);
    if (text.empty()) continue;
    ++whole;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << text;
    ASSERT_EQ(json.size(), 3u) << text;
    ASSERT_TRUE(json["name"].is_string() && json["age"].is_number_integer()) << text;
    ASSERT_TRUE(json["age"] >= 0 && json["age"] <= 99) << text;
    ASSERT_LE(json["tags"].size(), 3u) << text;
    for (const auto& tag : json["tags"]) ASSERT_TRUE(tag == "a" || tag == "b") << text;
  }
  EXPECT_EQ(whole, 100) << "white space does not go on for ever";
}

TEST(GrammarTest, AnInstanceIsNeverRefused) {
  const auto tokenizer = TinyTokenizer();
  for (const char* text :
       {R"({"name":"Ann","age":7,"tags":[]})", R"({"name": "", "age": 99, "tags": ["a", "b", "b"]})"}) {
    auto grammar = Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, kPerson);
    ASSERT_TRUE(grammar.has_value());
    std::vector<uint32_t> mask(MaskWords(tokenizer->vocab_size()));
    for (int32_t token : *tokenizer->Encode(text, {})) {
      ASSERT_TRUE((*grammar)->Mask(mask).has_value());
      ASSERT_TRUE(MaskAllows(mask, token)) << text;
      ASSERT_TRUE((*grammar)->Commit(token).has_value());
    }
    ASSERT_TRUE((*grammar)->Mask(mask).has_value());
    EXPECT_TRUE(MaskAllows(mask, tokenizer->eos())) << text;
  }
}

// SmolLM2's 49,152 tokens are 1,536 whole words, beside which the library keeps one more.
TEST(GrammarTest, AVocabularyOfWholeWordsHasItsMask) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "HEADRACE_TEST_MODEL names no model";
  const auto model = ReadTestModel(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const auto tokenizer = Tokenizer::FromVocabulary(model->vocabulary);
  ASSERT_TRUE(tokenizer.has_value());
  ASSERT_EQ((*tokenizer)->vocab_size() % 32, 0);
  const auto grammar = Grammar::Compile(**tokenizer, GrammarKind::kJsonSchema, kPerson);
  ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
  Random random(9);
  for (int i = 0; i < 20; ++i) {
    auto one = (*grammar)->Clone();
    ASSERT_TRUE(one.has_value());
    EXPECT_FALSE(nlohmann::json::parse(Draw(**tokenizer, **one, random, 400), nullptr, false).is_discarded());
  }
}

TEST(GrammarTest, RegularExpressionsAndLark) {
  const auto tokenizer = TinyTokenizer();
  Random random(3);
  const auto draws_match = [&](GrammarKind kind, const char* grammar_text, const char* pattern) {
    const auto grammar = Grammar::Compile(*tokenizer, kind, grammar_text);
    ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
    for (int i = 0; i < 20; ++i) {
      const std::string text = Draw(*tokenizer, **(*grammar)->Clone(), random, 60);
      ASSERT_TRUE(std::regex_match(text, std::regex(pattern))) << text;
    }
  };
  draws_match(GrammarKind::kRegex, "[ab]{2,4}[0-9]", "[ab]{2,4}[0-9]");
  draws_match(GrammarKind::kLark, "start: \"yes\" | \"no\" | \"may\" \"be\"", "yes|no|maybe");
}

// A client's options for the compiler would switch enforcement off.
TEST(GrammarTest, OptionsInTheSchemaAreIgnored) {
  const auto tokenizer = TinyTokenizer();
  EXPECT_FALSE(Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema,
                                R"({"type":"array","uniqueItems":true,"x-guidance":{"lenient":true}})"));
  auto anything = Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, "true");
  ASSERT_TRUE(anything.has_value());
  for (int32_t token : *tokenizer->Encode("[1]", {})) ASSERT_TRUE((*anything)->Commit(token).has_value());
  EXPECT_FALSE(Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, "false").has_value());
}

TEST(GrammarTest, ACloneGoesOnAlone) {
  const auto tokenizer = TinyTokenizer();
  auto grammar = Grammar::Compile(*tokenizer, GrammarKind::kLark, "start: \"ab\" | \"cd\"");
  ASSERT_TRUE(grammar.has_value());
  auto clone = (*grammar)->Clone();
  ASSERT_TRUE(clone.has_value());
  std::vector<uint32_t> mask(MaskWords(tokenizer->vocab_size())), before(mask);
  ASSERT_TRUE((*clone)->Mask(before).has_value());
  for (int32_t token : *tokenizer->Encode("ab", {})) {
    ASSERT_TRUE((*grammar)->Mask(mask).has_value());
    ASSERT_TRUE((*grammar)->Commit(token).has_value());
  }
  EXPECT_TRUE((*grammar)->done());
  EXPECT_FALSE((*clone)->done());
  ASSERT_TRUE((*clone)->Mask(mask).has_value());
  EXPECT_EQ(mask, before);
}

// The compiler recurses over rules and references: 20,000 of them ended the process.
TEST(GrammarTest, LongChainsOfRulesAreRefused) {
  const auto tokenizer = TinyTokenizer();
  const auto lark = [](int rules) {
    std::string text = "start: r0\n";
    for (int i = 0; i < rules; ++i) text += "r" + std::to_string(i) + ": r" + std::to_string(i + 1) + "\n";
    return text + "r" + std::to_string(rules) + ": \"a\"\n";
  };
  const auto schema = [](int references) {
    std::string text = R"({"$ref":"#/$defs/d0","$defs":{)";
    for (int i = 0; i < references; ++i)
      text += "\"d" + std::to_string(i) + R"(":{"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"},";
    return text + "\"d" + std::to_string(references) + R"(":{"type":"null"}}})";
  };
  EXPECT_TRUE(Grammar::Compile(*tokenizer, GrammarKind::kLark, lark(400)).has_value());
  EXPECT_TRUE(Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, schema(400)).has_value());
  EXPECT_FALSE(Grammar::Compile(*tokenizer, GrammarKind::kLark, lark(20'000)).has_value());
  EXPECT_FALSE(Grammar::Compile(*tokenizer, GrammarKind::kJsonSchema, schema(20'000)).has_value());
}

TEST(GrammarTest, BadGrammarsAreRefusedWithTheCause) {
  const auto tokenizer = TinyTokenizer();
  const auto refused = [&](GrammarKind kind, std::string_view text) {
    const auto grammar = Grammar::Compile(*tokenizer, kind, text);
    EXPECT_FALSE(grammar.has_value()) << text;
    if (grammar) return std::string();
    EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
    return grammar.error().message;
  };
  EXPECT_THAT(refused(GrammarKind::kJsonSchema, "{"), HasSubstr("not JSON"));
  EXPECT_THAT(refused(GrammarKind::kJsonSchema, R"({"type":"no such type"})"), HasSubstr("no such type"));
  EXPECT_THAT(refused(GrammarKind::kJsonSchema, R"({"type":"array","uniqueItems":true})"), HasSubstr("uniqueItems"))
      << "a keyword that is not enforced";
  EXPECT_NE(refused(GrammarKind::kRegex, "[a"), "");
  EXPECT_NE(refused(GrammarKind::kLark, "start: nowhere"), "");
  EXPECT_NE(refused(GrammarKind::kLark, "\xff"), "");
  EXPECT_THAT(refused(GrammarKind::kRegex, std::string(kGrammarBytesMax + 1, 'a')), HasSubstr("at most"));
}

}  // namespace
}  // namespace headrace
