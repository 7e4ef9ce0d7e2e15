// Tests only: vocabularies from the fixtures of tests/text and from model files.
#pragma once

#include <string>

#include "base/result.h"
#include "text/tokenizer.h"

namespace headrace {

// tests/text/PATH as bytes; the test process stops when it is missing.
std::string TestFile(const std::string& path);
// tests/text/fixtures/NAME.json
Vocabulary FixtureVocabulary(const std::string& name);
// The arrays that a converter would make of a byte-level tokenizer.json.
Vocabulary VocabularyFromJson(const std::string& tokenizer_json, std::string pre);

struct TestModel {
  Vocabulary vocabulary;
  std::string chat_template;
};
// The tokenizer part of a GGUF file, read without a limit on anything: for files we trust.
Result<TestModel> ReadTestModel(const std::string& path);

}  // namespace headrace
