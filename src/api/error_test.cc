// Goal: clients see the status, the four keys and the retry headers they act on (T2-T6, T9, T17, C27, O-05, O-24), and
// nothing about our files.
#include "api/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "json/json.h"

namespace headrace {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct MappingCase {
  ErrorCode code;
  int status;
  const char* type;
  const char* wire_code;
  const char* should_retry;  // "" when the header is absent
};

std::map<std::string, std::string> HeadersOf(const HttpError& error) {
  return {error.headers.begin(), error.headers.end()};
}

TEST(OpenAiError, T3AndT4EveryCode) {
  const MappingCase cases[] = {
      {ErrorCode::kInvalidArgument, 400, "invalid_request_error", "invalid_value", "false"},
      {ErrorCode::kContextLength, 400, "invalid_request_error", "context_length_exceeded", "false"},
      {ErrorCode::kUnauthenticated, 401, "invalid_request_error", "invalid_api_key", "false"},
      {ErrorCode::kPermissionDenied, 403, "permission_error", "permission_denied", "false"},
      {ErrorCode::kNotFound, 404, "invalid_request_error", "not_found", "false"},
      {ErrorCode::kConflict, 409, "invalid_request_error", "conflict", "false"},
      {ErrorCode::kTooLarge, 413, "invalid_request_error", "request_too_large", "false"},
      {ErrorCode::kUnsupported, 400, "invalid_request_error", "unsupported_parameter", "false"},
      {ErrorCode::kRateLimited, 429, "rate_limit_error", "rate_limit_exceeded", ""},
      {ErrorCode::kOverloaded, 503, "overloaded_error", "overloaded", ""},
      {ErrorCode::kUnavailable, 503, "unavailable_error", "unavailable", ""},
      {ErrorCode::kDeadlineExceeded, 504, "timeout_error", "deadline_exceeded", "false"},
      {ErrorCode::kCancelled, 499, "cancelled_error", "cancelled", "false"},
      {ErrorCode::kCorruptData, 500, "server_error", "internal_error", "false"},
      {ErrorCode::kIo, 500, "server_error", "internal_error", ""},
      {ErrorCode::kInternal, 500, "server_error", "internal_error", ""},
  };
  for (const MappingCase& c : cases) {
    SCOPED_TRACE(ErrorCodeName(c.code));
    const HttpError http = ToOpenAiError({c.code, "what \"and\" why\n", "messages[0].content", 0});
    EXPECT_EQ(http.status, c.status);
    auto body = ParseJson(http.body, {});
    ASSERT_TRUE(body.has_value()) << http.body;
    const Json& error = (*body)["error"];
    EXPECT_EQ(error.size(), 4u);
    EXPECT_EQ(error["type"], c.type);
    EXPECT_EQ(error["code"], c.wire_code);
    EXPECT_TRUE(error["message"].is_string());
    EXPECT_TRUE(error.contains("param"));
    EXPECT_EQ(HeadersOf(http)["x-should-retry"], c.should_retry);
  }
}

TEST(OpenAiError, T3ParamAndCodeAreStringOrNull) {
  EXPECT_EQ(ToOpenAiError({ErrorCode::kInvalidArgument, "m", "", 0}).body,
            R"({"error":{"message":"m","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_EQ(ToOpenAiError({ErrorCode::kInvalidArgument, "m", "top_p", 0}).body,
            R"({"error":{"message":"m","type":"invalid_request_error","param":"top_p","code":"invalid_value"}})");
}

TEST(OpenAiError, T5UnknownModelNamesTheModels) {
  const std::string models[] = {"qwen3-4b", "smollm2-135m"};
  const Error error = ModelNotFoundError("smolm2-135m", models);
  EXPECT_THAT(error.message, HasSubstr("Did you mean 'smollm2-135m'?"));
  EXPECT_THAT(error.message, HasSubstr("qwen3-4b"));
  const HttpError http = ToOpenAiError(error);
  EXPECT_EQ(http.status, 404);
  EXPECT_THAT(http.body, HasSubstr(R"("param":"model","code":"model_not_found")"));
  EXPECT_THAT(ModelNotFoundError("gpt-4o", models).message, Not(HasSubstr("Did you mean")));
  EXPECT_THAT(ModelNotFoundError("x", {}).message, HasSubstr("No model is loaded"));
  EXPECT_LT(ModelNotFoundError(std::string(1 << 20, 'x'), models).message.size(), 400u);
  const std::vector<std::string> many(100, std::string(64, 'n'));
  EXPECT_THAT(ModelNotFoundError("x", many).message, HasSubstr("and 92 more"));
}

TEST(OpenAiError, T6AndO24ContextLength) {
  const Error error = ContextLengthError(512, 5000, 100);
  EXPECT_THAT(error.message, ContainsRegex("maximum context length is 512 tokens"));
  EXPECT_THAT(error.message, HasSubstr("5100 tokens"));
  EXPECT_THAT(error.message, HasSubstr("5000 in the prompt"));
  EXPECT_THAT(ContextLengthError(512, 513, std::nullopt).message, HasSubstr("513 tokens in the prompt"));
  EXPECT_THAT(ContextLengthError(512, 500, INT64_MAX).message, HasSubstr("9223372036854775807"));
  EXPECT_EQ(ContextLengthError(512, 513, std::nullopt, "prompt").field, "prompt");
  const HttpError http = ToOpenAiError(error);
  EXPECT_EQ(http.status, 400);
  EXPECT_THAT(http.body, HasSubstr(R"("code":"context_length_exceeded")"));
}

TEST(OpenAiError, O26PoolLimitReadsLikeAContextLimit) {
  const Error error = KvPoolLimitError(256, 300, std::nullopt);
  EXPECT_THAT(error.message, ContainsRegex("maximum context length is 256 tokens"));
  EXPECT_THAT(error.message, HasSubstr("KV pool"));
  EXPECT_THAT(error.message, HasSubstr("300"));
  EXPECT_THAT(ToOpenAiError(error).body, HasSubstr("context_length_exceeded"));
}

TEST(OpenAiError, T9RetryHeaders) {
  struct Case {
    ErrorCode code;
    int64_t retry_after_ms;
    const char* ms;
    const char* seconds;
  };
  const Case cases[] = {{ErrorCode::kRateLimited, 1, "1", "1"},           {ErrorCode::kRateLimited, 1000, "1000", "1"},
                        {ErrorCode::kRateLimited, 1001, "1001", "2"},     {ErrorCode::kOverloaded, 0, "1000", "1"},
                        {ErrorCode::kUnavailable, 30'000, "30000", "30"}, {ErrorCode::kConflict, 250, "250", "1"}};
  for (const Case& c : cases) {
    auto headers = HeadersOf(ToOpenAiError({c.code, "later", "", c.retry_after_ms}));
    EXPECT_EQ(headers["retry-after-ms"], c.ms);
    EXPECT_EQ(headers["retry-after"], c.seconds);
    EXPECT_FALSE(headers.contains("x-should-retry"));
  }
  EXPECT_FALSE(HeadersOf(ToOpenAiError({ErrorCode::kInvalidArgument, "no", "", 500})).contains("retry-after"));
}

TEST(OpenAiError, FaultsOfOursSayNothingAboutFiles) {
  for (const ErrorCode code : {ErrorCode::kCorruptData, ErrorCode::kIo, ErrorCode::kInternal}) {
    const HttpError http = ToOpenAiError({code, "cannot read secret.gguf", "secret.gguf", 0});
    EXPECT_THAT(http.body, Not(HasSubstr("secret")));
    EXPECT_THAT(http.body, HasSubstr("log"));
  }
}

TEST(OpenAiError, LongMessagesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 5'000; ++i) text += "你";
  const HttpError http = ToOpenAiError({ErrorCode::kInvalidArgument, text, "", 0});
  EXPECT_LT(http.body.size(), 2'300u);
  EXPECT_THAT(http.body, Not(HasSubstr("\uFFFD")));
}

TEST(OpenAiError, C27AndO05StreamErrorIsTheSameObject) {
  const Error error{ErrorCode::kUnavailable, "draining", "", 0};
  EXPECT_EQ(StreamErrorEvent(error), ToOpenAiError(error).body);
  EXPECT_THAT(StreamErrorEvent(error), Not(HasSubstr("\n")));
}

}  // namespace
}  // namespace headrace
