#include "api/error.h"

#include <fmt/format.h>
#include <algorithm>
#include <numeric>

#include "json/json.h"

namespace headrace {
namespace {

// Messages quote fields and limits, never whole inputs; this is the last guard.
constexpr size_t kMessageBytesMax = 2048;
// Waiting less only makes a full server fuller.
constexpr int64_t kRetryMsDefault = 1'000;
constexpr size_t kModelNamesShownMax = 8;
constexpr size_t kModelNameBytesShown = 64;

enum class Retry { kNever, kIfTimed, kAlways, kUnsaid };

struct Mapping {
  int status;
  std::string_view type;
  std::string_view code;  // "" is null
  Retry retry;
};

// Retry: kNever says so to the SDKs, which otherwise repeat 409, 429 and 5xx twice; kIfTimed is kNever unless the error
// knows when; kAlways always says when; kUnsaid leaves the SDK's own habit.
Mapping MappingOf(const Error& error) {
  constexpr std::string_view kRequest = "invalid_request_error";
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return {400, kRequest, error.field.empty() ? "" : "invalid_value", Retry::kNever};
    case ErrorCode::kContextLength:
      return {400, kRequest, "context_length_exceeded", Retry::kNever};
    case ErrorCode::kUnauthenticated:
      return {401, kRequest, "invalid_api_key", Retry::kNever};
    case ErrorCode::kPermissionDenied:
      return {403, "permission_error", "permission_denied", Retry::kNever};
    case ErrorCode::kNotFound:
      return {404, kRequest, error.field == "model" ? "model_not_found" : "not_found", Retry::kNever};
    case ErrorCode::kConflict:
      return {409, kRequest, "conflict", Retry::kIfTimed};
    case ErrorCode::kTooLarge:
      return {413, kRequest, "request_too_large", Retry::kNever};
    case ErrorCode::kUnsupported:
      return {400, kRequest, "unsupported_parameter", Retry::kNever};
    case ErrorCode::kRateLimited:
      return {429, "rate_limit_error", "rate_limit_exceeded", Retry::kAlways};
    case ErrorCode::kOverloaded:
      return {503, "overloaded_error", "overloaded", Retry::kAlways};
    case ErrorCode::kUnavailable:
      return {503, "unavailable_error", "unavailable", Retry::kAlways};
    case ErrorCode::kDeadlineExceeded:
      return {504, "timeout_error", "deadline_exceeded", Retry::kIfTimed};
    case ErrorCode::kCancelled:
      return {499, "cancelled_error", "cancelled", Retry::kNever};
    case ErrorCode::kCorruptData:
      return {500, "server_error", "internal_error", Retry::kNever};
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return {500, "server_error", "internal_error", Retry::kUnsaid};
}

std::string_view MessageOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kCorruptData:
    case ErrorCode::kIo:
      return "The server could not use its own data. Its log says more.";
    case ErrorCode::kInternal:
      return "The server failed while it handled this request. Its log says more.";
    default:
      return CutUtf8(error.message, kMessageBytesMax);
  }
}

void AppendStringOrNull(std::string& out, std::string_view text) {
  if (text.empty()) {
    out += "null";
  } else {
    AppendJsonString(out, text);
  }
}

std::string ErrorBody(const Error& error, const Mapping& mapping) {
  std::string body = R"({"error":{"message":)";
  AppendJsonString(body, MessageOf(error));
  body += R"(,"type":)";
  AppendJsonString(body, mapping.type);
  body += R"(,"param":)";
  AppendStringOrNull(body, mapping.status == 500 ? "" : error.field);
  body += R"(,"code":)";
  AppendStringOrNull(body, mapping.code);
  body += "}}";
  return body;
}

void AddRetryHeaders(const Error& error, Retry retry, HttpError* out) {
  const bool timed = error.retry_after_ms > 0;
  if (retry == Retry::kNever || (retry == Retry::kIfTimed && !timed)) {
    out->headers.emplace_back("x-should-retry", "false");
  } else if (timed || retry == Retry::kAlways) {
    const int64_t ms = timed ? error.retry_after_ms : kRetryMsDefault;
    out->headers.emplace_back("retry-after-ms", std::to_string(ms));
    out->headers.emplace_back("retry-after", std::to_string(ms / 1000 + (ms % 1000 != 0)));
  }
}

std::string TokensAsked(int64_t prompt_tokens, std::optional<int64_t> max_tokens) {
  if (!max_tokens) return fmt::format("you requested {} tokens in the prompt", prompt_tokens);
  const int64_t total = *max_tokens > INT64_MAX - prompt_tokens ? INT64_MAX : prompt_tokens + *max_tokens;
  return fmt::format("you requested {} tokens ({} in the prompt, {} for the answer)", total, prompt_tokens,
                     *max_tokens);
}

// Levenshtein's distance, one row.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

HttpError ToOpenAiError(const Error& error) {
  const Mapping mapping = MappingOf(error);
  HttpError out{mapping.status, ErrorBody(error, mapping), {}};
  AddRetryHeaders(error, mapping.retry, &out);
  return out;
}

std::string StreamErrorEvent(const Error& error) { return ErrorBody(error, MappingOf(error)); }

Error ContextLengthError(int64_t context_tokens, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                         std::string field) {
  return {ErrorCode::kContextLength,
          fmt::format("This model's maximum context length is {} tokens. However, {}. Shorten the prompt: the answer "
                      "needs room for at least one token.",
                      context_tokens, TokensAsked(prompt_tokens, max_tokens)),
          std::move(field), 0};
}

Error KvPoolLimitError(int64_t pool_tokens, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                       std::string field) {
  return {ErrorCode::kContextLength,
          fmt::format("On this server the maximum context length is {} tokens, the size of its KV pool. However, {}. "
                      "Shorten the prompt, or ask the operator for a larger pool.",
                      pool_tokens, TokensAsked(prompt_tokens, max_tokens)),
          std::move(field), 0};
}

Error ModelNotFoundError(std::string_view requested, std::span<const std::string> existing) {
  const std::string_view name = CutUtf8(requested, kModelNameBytesShown);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string& model : existing)
    near.emplace_back(EditDistance(name, CutUtf8(model, kModelNameBytesShown)), model);
  std::ranges::sort(near);
  std::string message = fmt::format("The model '{}' does not exist here.", name);
  // A third of the name may be misspelt before the suggestion becomes noise.
  if (!near.empty() && near[0].first <= std::max<size_t>(2, name.size() / 3))
    message += fmt::format(" Did you mean '{}'?", near[0].second);
  message += near.empty() ? " No model is loaded." : " Models:";
  for (size_t i = 0; i < near.size() && i < kModelNamesShownMax; ++i)
    message += fmt::format("{} {}", i > 0 ? "," : "", near[i].second);
  if (near.size() > kModelNamesShownMax) message += fmt::format(" and {} more", near.size() - kModelNamesShownMax);
  if (!near.empty()) message += '.';
  return {ErrorCode::kNotFound, std::move(message), "model", 0};
}

}  // namespace headrace
