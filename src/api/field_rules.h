// Known fields that this server does not serve (yet), each with the one value that asks for nothing and a remedy.
// A request that asks for more is refused by name; nothing is dropped. Internal to api/.
#pragma once

#include "api/limits.h"
#include "api/request.h"
#include "base/result.h"
#include "json/json_fields.h"

namespace headrace {

// kUnsupported naming the first field that asks for what is not served.
Status CheckUnsupported(JsonFields& fields, GenerationRequest::Kind kind);
// tools, tool_choice, functions and function_call: accepted where they ask for no call (C15, C16).
Status CheckTools(JsonFields& fields, const ApiLimits& limits);
// modalities ["text"] passes; reasoning_effort, verbosity and prediction are read or checked.
Status ReadChatOptions(JsonFields& fields, const ApiLimits& limits, GenerationRequest* request);

}  // namespace headrace
