// How the program ends, whatever command ran. Documented in `headrace --help all`; scripts depend on these numbers.
#pragma once

#include "base/result.h"

namespace headrace {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,        // it was tried and failed
  kExitUsage = 2,          // a flag, variable, file or combination that is wrong; a prompt that cannot be answered
  kExitNotFound = 3,       // no such model, file or repository
  kExitCannotServe = 4,    // port taken, too little memory
  kExitInterrupted = 130,  // 128 + SIGINT, as shells have it
};

ExitCode ExitCodeOf(const Error& error);

}  // namespace headrace
