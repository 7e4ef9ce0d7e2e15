// `headrace serve`: the event loop, the HTTP server, the model behind it, drain and stop.
#pragma once

#include "server/serve_options.h"

namespace headrace {

// Runs until stopped by a signal. Returns the exit code (base/exit_code.h).
int RunServe(const ServeOptions& options);

}  // namespace headrace
