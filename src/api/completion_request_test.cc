// Goal: /v1/completions takes every shape of prompt and the options of evaluation harnesses (L1, L2, L4), and
// degenerate prompts are refused or served, never a stop (O-25).
#include "api/request_cases.h"

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<Prompt> Prompts(const std::string& prompt) {
  return Accepted(ParseCompletionRequest(R"({"model":"m","prompt":)" + prompt + "}", {})).prompts;
}
void ExpectPromptRefused(const std::string& prompt, const std::string& field, const std::string& message = "") {
  ExpectRefused(ParseCompletionRequest, R"({"model":"m","prompt":)" + prompt + "}", field, message);
}

TEST(CompletionRequest, L1EveryShapeOfPrompt) {
  EXPECT_EQ(Prompts("\"a\""), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(Prompts(R"(["a","b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(Prompts("[1,2,3]"), (std::vector<Prompt>{std::vector<int32_t>{1, 2, 3}}));
  EXPECT_EQ(Prompts("[1.0]"), (std::vector<Prompt>{std::vector<int32_t>{1}}));
  EXPECT_EQ(Prompts("[[1,2],[3]]"), (std::vector<Prompt>{std::vector<int32_t>{1, 2}, std::vector<int32_t>{3}}));
}

TEST(CompletionRequest, O25DegeneratePrompts) {
  EXPECT_EQ(Prompts("\"\""), (std::vector<Prompt>{""}));
  EXPECT_EQ(Prompts("[\"\"]"), (std::vector<Prompt>{""}));
  ExpectPromptRefused("[]", "prompt", "empty array");
  ExpectPromptRefused("[[]]", "prompt[0]", "no token ids");
  ExpectPromptRefused("[[1],[]]", "prompt[1]", "no token ids");
  ExpectPromptRefused("null", "prompt", "required");
  ExpectPromptRefused("7", "prompt");
  ExpectPromptRefused("{}", "prompt");
  ExpectPromptRefused("[-1]", "prompt[0]");
  ExpectPromptRefused("[1,2147483648]", "prompt[1]");
  ExpectPromptRefused("[1,1.5]", "prompt[1]");
  ExpectPromptRefused("[1,true]", "prompt[1]");
  ExpectPromptRefused("[1,\"a\"]", "prompt[1]");
  ExpectPromptRefused("[\"a\",1]", "prompt[1]", "a string");
  ExpectPromptRefused("[[1],\"a\"]", "prompt[1]");
  ExpectPromptRefused("[true]", "prompt[0]");
  ExpectPromptRefused("[[1],[2,\"x\"]]", "prompt[1][1]");
  const Status status =
      ValidateTokenIds(Accepted(ParseCompletionRequest(R"({"model":"m","prompt":[5,100]})", {})), 100);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().field, "prompt");
  EXPECT_THAT(status.error().message, HasSubstr("100"));
}

TEST(CompletionRequest, L2MaxTokensAndEcho) {
  EXPECT_EQ(Completion().max_tokens, 16);
  EXPECT_EQ(Completion(R"("max_tokens":null)").max_tokens, 16);
  EXPECT_EQ(Completion(R"("max_tokens":3)").max_tokens, 3);
  const GenerationRequest r = Completion(R"("echo":true,"max_tokens":0,"logprobs":1)");
  EXPECT_EQ(r.max_tokens, 0);
  EXPECT_TRUE(r.echo);
  EXPECT_TRUE(r.logprobs);
  EXPECT_EQ(r.top_logprobs, 1);
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("max_tokens":0)"), "max_tokens", "echo");
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("max_tokens":-1)"), "max_tokens");
}

TEST(CompletionRequest, L3LogprobsIsACount) {
  EXPECT_FALSE(Completion().logprobs);
  EXPECT_TRUE(Completion(R"("logprobs":0)").logprobs);
  EXPECT_EQ(Completion(R"("logprobs":20)").top_logprobs, 20);
  for (const char* bad : {"-1", "21", "1.5", "true"})
    ExpectRefused(ParseCompletionRequest, CompletionBodyWith(std::string(R"("logprobs":)") + bad), "logprobs");
}

TEST(CompletionRequest, L4BestOf) {
  EXPECT_EQ(Completion(R"("n":3,"best_of":3)").best_of, 3);
  EXPECT_EQ(Completion(R"("n":3)").best_of, 3);
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("n":3,"best_of":2)"), "best_of", "below 'n'");
  EXPECT_EQ(Completion(R"("best_of":2)").best_of, 2);
  EXPECT_EQ(Completion(R"("best_of":2,"n":2,"stream":true)").best_of, 2);
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("best_of":2,"stream":true)"), "best_of", "streamed");
  ExpectRefused(ParseCompletionRequest, R"({"model":"m","prompt":["1","2","3","4","5","6","7","8","9"],"best_of":128})",
                "best_of", "1024");
}

TEST(CompletionRequest, FieldsOfOtherRoutesAreNamed) {
  const char* cases[][2] = {{R"("suffix":"x")", "suffix"},
                            {R"("messages":[])", "messages"},
                            {R"("max_completion_tokens":5)", "max_completion_tokens"},
                            {R"("top_logprobs":5)", "top_logprobs"},
                            {R"("tools":[{}])", "tools"},
                            {R"("json_schema":{"type":"object"})", "json_schema"}};
  for (const auto& c : cases)
    ExpectRefused(ParseCompletionRequest, CompletionBodyWith(c[0]), c[1], "", ErrorCode::kUnsupported);
  EXPECT_THAT(Completion(R"("suffix":null,"tools":[],"foo":1)").unknown_fields, ElementsAre("foo"));
}

TEST(CompletionRequest, StreamsLikeChat) {
  const GenerationRequest r =
      Completion(R"("stream":true,"stream_options":{"include_usage":true},"stop":"x","user":"u")");
  EXPECT_TRUE(r.stream);
  EXPECT_TRUE(r.include_usage);
  EXPECT_THAT(r.stop, ElementsAre("x"));
  EXPECT_EQ(r.kind, GenerationRequest::Kind::kCompletion);
  ExpectRefused(ParseCompletionRequest, CompletionBodyWith(R"("stream_options":{})"), "stream_options");
}

}  // namespace
}  // namespace headrace
