#include "base/exit_code.h"

namespace headrace {

ExitCode ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextLength:
    case ErrorCode::kTooLarge:
      return kExitUsage;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kOverloaded:
      return kExitCannotServe;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

}  // namespace headrace
