// `headrace serve`: the event loop, the HTTP server, the model behind it, drain and stop.
#pragma once

#include "server/serve_options.h"

namespace headrace {

// Exit codes of serve beyond 0 and 1.
constexpr int kExitCannotServe = 4;  // port taken, no memory, no such model

// Runs until stopped by a signal. Returns the exit code.
int RunServe(const ServeOptions& options);

}  // namespace headrace
