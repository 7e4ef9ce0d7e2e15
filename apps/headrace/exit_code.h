// How a command that failed says so.
#pragma once

#include "base/exit_code.h"

namespace headrace {

// Writes "headrace: message" to stderr and gives the exit code.
int Complain(const Error& error);

}  // namespace headrace
