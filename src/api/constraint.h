// What a request says its answer must be: response_format, vLLM's structured_outputs and the older guided_* names, as
// one grammar. Internal to api/.
#pragma once

#include "api/request.h"
#include "base/result.h"
#include "json/json_fields.h"

namespace headrace {

constexpr size_t kConstraintBytesMax = 1 << 20;
constexpr size_t kChoicesMax = 1024;

// At most one; kInvalidArgument names the second. Whether a schema or an expression is one is for the compiler.
Status ReadConstraint(JsonFields& fields, Constraint* constraint);

}  // namespace headrace
