// Chat history, from the many spellings of clients to the one that templates read. Internal to api/.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "api/limits.h"
#include "base/result.h"
#include "json/json.h"

namespace headrace {

// The normalised array. Each message holds, in this order and only where it applies:
//   role                     system (developer too), user, assistant, tool (function too)
//   content                  always a string: text and refusal parts joined by a line break, as vLLM and llama.cpp do;
//                            "" for an assistant's null, absent or [] content
//   name
//   reasoning_content and reasoning   the same text under both names, since templates use either
//   tool_calls               [{id, type: "function", function: {name, arguments: object}}]
//   tool_call_id
// arguments: the string's object; "", blank and "null" are {}; an object is taken as it is; anything else is 400 at
// messages[i].tool_calls[j].function.arguments. A legacy function_call becomes one tool call, a function message its
// result. nodes_left bounds what arguments may expand to. Unknown names are added as "messages[].name".
Result<Json> NormaliseMessages(const Json& messages, const ApiLimits& limits, size_t nodes_left,
                               std::vector<std::string>* unknown);

}  // namespace headrace
