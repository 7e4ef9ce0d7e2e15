// How the program ends. Documented in `headrace --help all`; scripts depend on these numbers.
#pragma once

#include "base/result.h"

namespace headrace {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,   // it was tried and failed
  kExitUsage = 2,     // flag, variable, file or combination that is wrong
  kExitNotFound = 3,  // no such model, file or repository
  // 4: port taken, too little memory (kExitCannotServe of server/serve.h)
  kExitInterrupted = 130,
};

int ExitCodeOf(const Error& error);
// Writes "headrace: message" to stderr and gives the exit code.
int Complain(const Error& error);

}  // namespace headrace
