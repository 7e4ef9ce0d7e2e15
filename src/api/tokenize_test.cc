// Goal: /tokenize and /detokenize read and write vLLM's shapes.
#include "api/tokenize.h"

#include "api/request_cases.h"

namespace headrace {
namespace {

using testing::ElementsAre;

TEST(Tokenize, PromptAndMessages) {
  auto text = ParseTokenizeRequest(R"({"model":"m","prompt":"hi","return_token_strs":true,"foo":1})", {});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(text->prompt, "hi");
  EXPECT_TRUE(text->add_special_tokens);
  EXPECT_TRUE(text->return_token_strs);
  EXPECT_THAT(text->unknown_fields, ElementsAre("foo"));
  auto chat = ParseTokenizeRequest(
      R"({"messages":[{"role":"developer","content":"x"}],"add_generation_prompt":false,"chat_template_kwargs":{"a":1}})",
      {});
  ASSERT_TRUE(chat.has_value()) << chat.error().message;
  EXPECT_EQ(chat->messages[0]["role"], "system");
  EXPECT_FALSE(chat->add_special_tokens);
  EXPECT_FALSE(chat->add_generation_prompt);
  EXPECT_EQ(chat->chat_template_kwargs["a"], 1);
  EXPECT_TRUE(ParseTokenizeRequest(R"({"prompt":""})", {})->prompt->empty());
}

TEST(Tokenize, Refuses) {
  ExpectRefused(ParseTokenizeRequest, R"({})", "prompt", "Exactly one");
  ExpectRefused(ParseTokenizeRequest, R"({"prompt":"x","messages":[]})", "prompt", "Exactly one");
  ExpectRefused(ParseTokenizeRequest, R"({"messages":[]})", "messages", "at least one");
  ExpectRefused(ParseTokenizeRequest, R"({"prompt":["x"]})", "prompt", "a string");
  ExpectRefused(ParseTokenizeRequest, R"({"messages":[{"role":"user","content":"x"}],"tools":[{}]})", "tools", "",
                ErrorCode::kUnsupported);
  ExpectRefused(ParseTokenizeRequest, R"({"prompt":"x","chat_template":"y"})", "chat_template", "",
                ErrorCode::kUnsupported);
}

TEST(Tokenize, Detokenize) {
  auto request = ParseDetokenizeRequest(R"({"model":"m","tokens":[1,2,99]})", {});
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->tokens, ElementsAre(1, 2, 99));
  EXPECT_TRUE(ValidateTokenIds(*request, 100).has_value());
  EXPECT_EQ(ValidateTokenIds(*request, 99).error().field, "tokens");
  EXPECT_TRUE(ParseDetokenizeRequest(R"({"tokens":[]})", {})->tokens.empty());
  ExpectRefused(ParseDetokenizeRequest, R"({})", "tokens", "required");
  ExpectRefused(ParseDetokenizeRequest, R"({"tokens":[1,-1]})", "tokens[1]");
}

TEST(Tokenize, Bodies) {
  const std::vector<int32_t> tokens{1, 22};
  const std::vector<std::string> texts{"a", "\xFF"};
  EXPECT_EQ(TokenizeBody(tokens, 512, nullptr), R"({"count":2,"max_model_len":512,"tokens":[1,22],"token_strs":null})");
  EXPECT_EQ(TokenizeBody(tokens, 512, &texts),
            "{\"count\":2,\"max_model_len\":512,\"tokens\":[1,22],\"token_strs\":[\"a\",\"\uFFFD\"]}");
  EXPECT_EQ(DetokenizeBody("a\"b"), R"({"prompt":"a\"b"})");
}

}  // namespace
}  // namespace headrace
