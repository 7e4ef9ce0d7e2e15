// Goal: what the C interface promises beyond what the room uses today: panics stay inside, null-free lengths, and the
// grammar matcher follows a JSON schema.
#include "text/shim.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "text/test_vocabulary.h"
#include "text/tokenizer.h"

namespace headrace {
namespace {

TEST(Shim, PanicBecomesAStatus) {
  ShimBuffer err;
  EXPECT_EQ(ts_test_panic(err.raw()), TS_PANIC);
  EXPECT_TRUE(err.view().contains("on purpose"));
  EXPECT_EQ(ShimError(TS_PANIC, err, ErrorCode::kInvalidArgument).code, ErrorCode::kInternal);
  EXPECT_EQ(ts_test_panic(nullptr), TS_PANIC);
}

TEST(Shim, FreeingNothing) {
  ts_buf_free(nullptr);
  ts_ids_free(nullptr);
  ts_tokenizer_free(nullptr);
  ts_template_free(nullptr);
  ts_matcher_free(nullptr);
}

class Matcher {
 public:
  Matcher(const Tokenizer& tokenizer, std::string_view schema)
      : words_((static_cast<size_t>(tokenizer.vocab_size()) + 31) / 32) {
    ShimBuffer err;
    status_ = ts_matcher_json_schema(tokenizer.shim(), ShimBytes(schema), schema.size(), &handle_, err.raw());
    message_ = err.view();
  }
  ~Matcher() { ts_matcher_free(handle_); }
  ts_status status() const { return status_; }
  const std::string& message() const { return message_; }

  bool Allows(int32_t id) {
    std::vector<uint32_t> mask(words_ + 1);
    ShimBuffer err;
    EXPECT_EQ(ts_matcher_mask(handle_, mask.data(), mask.size(), err.raw()), TS_OK) << err.view();
    return mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1;
  }
  bool Commit(int32_t id) {
    bool stopped = false;
    ShimBuffer err;
    EXPECT_EQ(ts_matcher_commit(handle_, static_cast<uint32_t>(id), &stopped, err.raw()), TS_OK) << err.view();
    return stopped;
  }

 private:
  ts_matcher* handle_ = nullptr;
  ts_status status_ = TS_PANIC;
  std::string message_;
  size_t words_;
};

TEST(Shim, MatcherFollowsASchema) {
  auto tokenizer = Tokenizer::FromVocabulary(FixtureVocabulary("tiny_bpe"));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  Matcher matcher(
      **tokenizer,
      R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false})");
  ASSERT_EQ(matcher.status(), TS_OK) << matcher.message();
  auto ids = (*tokenizer)->Encode(R"({"a": 42})", {});
  ASSERT_TRUE(ids.has_value());
  EXPECT_FALSE(matcher.Allows((*tokenizer)->eos()));
  for (int32_t id : *ids) {
    ASSERT_TRUE(matcher.Allows(id)) << (*tokenizer)->TokenText(id);
    EXPECT_EQ(matcher.Commit(id), id == ids->back());
  }
  // Complete: only the end may follow.
  EXPECT_TRUE(matcher.Allows((*tokenizer)->eos()));
  EXPECT_FALSE(matcher.Allows(ids->front()));
}

TEST(Shim, MatcherRefusesBadSchemas) {
  auto tokenizer = Tokenizer::FromVocabulary(FixtureVocabulary("tiny_bpe"));
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(Matcher(**tokenizer, "{").status(), TS_INVALID);
  EXPECT_EQ(Matcher(**tokenizer, R"({"type":"no such type"})").status(), TS_INVALID);
}

}  // namespace
}  // namespace headrace
