#include "text/shim.h"

namespace headrace {

Error ShimError(ts_status status, const ShimBuffer& err, ErrorCode invalid, std::string field) {
  ErrorCode code = ErrorCode::kInternal;
  switch (status) {
    case TS_INVALID:
      code = invalid;
      break;
    case TS_UNSUPPORTED:
      code = ErrorCode::kUnsupported;
      break;
    // Both are the caller's to mend: a template that works too hard or refuses these messages.
    case TS_LIMIT:
    case TS_RAISED:
      code = ErrorCode::kInvalidArgument;
      break;
    case TS_OK:
    case TS_TOO_SMALL:
    case TS_PANIC:
      break;
  }
  return Error{code, std::string(err.view()), std::move(field), 0};
}

}  // namespace headrace
