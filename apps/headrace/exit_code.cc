#include "exit_code.h"

#include <cstdio>

namespace headrace {

int ExitCodeOf(const Error& error) {
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

int Complain(const Error& error) {
  std::fprintf(stderr, "headrace: %s\n", error.message.c_str());
  return ExitCodeOf(error);
}

}  // namespace headrace
