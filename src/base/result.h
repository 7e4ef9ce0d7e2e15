// Result<T>: a value or an Error. Bytes from outside produce errors, never exceptions and never a CHECK.
// Error carries a code, a message for a person (what, why, what to do next) and the offending field (a JSON pointer,
// a tensor name, a flag), so that api/ alone maps it to a protocol.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace headrace {

enum class ErrorCode : uint8_t {
  kInvalidArgument,   // the caller's value is wrong
  kContextLength,     // prompt does not fit the context or the KV pool
  kUnauthenticated,   // no or wrong key
  kPermissionDenied,  // right key, not allowed
  kNotFound,          // no such model, file, route
  kConflict,          // state does not allow it
  kTooLarge,          // above a named limit of bytes
  kUnsupported,       // understood, not implemented here
  kRateLimited,       // the key's own limit; retry later
  kOverloaded,        // the server's limit; retry later
  kUnavailable,       // not ready, draining
  kDeadlineExceeded,  // took longer than allowed
  kCancelled,         // the caller left
  kCorruptData,       // a file is not what it says
  kIo,                // the system refused an operation
  kInternal,          // a fault of ours
};

// Stable lower-case name, used in logs and metrics labels.
std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string field;           // "" when no single field is at fault
  int64_t retry_after_ms = 0;  // > 0: the time until a retry can succeed
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

[[nodiscard]] inline std::unexpected<Error> Fail(ErrorCode code, std::string message, std::string field = {}) {
  return std::unexpected<Error>(Error{code, std::move(message), std::move(field), 0});
}
[[nodiscard]] inline std::unexpected<Error> Fail(Error error) { return std::unexpected<Error>(std::move(error)); }

}  // namespace headrace

// Leaves the function with the error of `expr`, a Status or Result.
#define HR_RETURN_IF_ERROR(expr)                                               \
  do {                                                                         \
    if (auto hr_status = (expr); !hr_status) [[unlikely]]                      \
      return std::unexpected<::headrace::Error>(std::move(hr_status).error()); \
  } while (0)

#define HR_CONCAT_INNER(a, b) a##b
#define HR_CONCAT(a, b) HR_CONCAT_INNER(a, b)
// HR_ASSIGN_OR_RETURN(auto x, MakeX());
#define HR_ASSIGN_OR_RETURN(lhs, expr) HR_ASSIGN_OR_RETURN_IMPL(HR_CONCAT(hr_result_, __LINE__), lhs, expr)
#define HR_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)                       \
  auto tmp = (expr);                                                   \
  if (!tmp) [[unlikely]]                                               \
    return std::unexpected<::headrace::Error>(std::move(tmp).error()); \
  lhs = std::move(*tmp)
