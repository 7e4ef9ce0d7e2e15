// What the request tests share: bodies around one field, and the check that a body is refused for that field.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "api/error.h"
#include "api/request.h"

namespace headrace {

// Parses `body` with `parse` and expects an error of `code` at `field` whose message contains `message`.
template <typename Parse>
void ExpectRefused(Parse parse, const std::string& body, const std::string& field, const std::string& message = "",
                   ErrorCode code = ErrorCode::kInvalidArgument, const ApiLimits& limits = {}) {
  SCOPED_TRACE(body.substr(0, 200));
  const auto request = parse(body, limits);
  ASSERT_FALSE(request.has_value());
  EXPECT_EQ(request.error().field, field) << request.error().message;
  EXPECT_EQ(ErrorCodeName(request.error().code), ErrorCodeName(code)) << request.error().message;
  EXPECT_THAT(request.error().message, testing::HasSubstr(message));
}

// A small valid request with more fields: Chat(R"("n":2)").
inline std::string ChatBody(const std::string& fields = "") {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}
inline std::string CompletionBodyWith(const std::string& fields = "") {
  return R"({"model":"m","prompt":"hi")" + (fields.empty() ? "" : "," + fields) + "}";
}
inline std::string WithMessages(const std::string& messages, const std::string& fields = "") {
  return R"({"model":"m","messages":)" + messages + (fields.empty() ? "" : "," + fields) + "}";
}

// The request; an error fails the test.
inline GenerationRequest Accepted(const Result<GenerationRequest>& request) {
  EXPECT_TRUE(request.has_value()) << request.error().field << ": " << request.error().message;
  return request.value_or(GenerationRequest{});
}
inline GenerationRequest Chat(const std::string& fields = "") {
  return Accepted(ParseChatRequest(ChatBody(fields), {}));
}
inline GenerationRequest Completion(const std::string& fields = "") {
  return Accepted(ParseCompletionRequest(CompletionBodyWith(fields), {}));
}

}  // namespace headrace
