// headrace pull MODEL
#include "catalog/progress.h"
#include "command.h"
#include "exit_code.h"
#include "model_choice.h"

#include <fmt/format.h>

#include <cstdio>

namespace headrace {

int PullCommand(const Invocation& invocation) {
  if (invocation.words.empty())
    return Complain({ErrorCode::kInvalidArgument,
                     "pull needs a MODEL: a name such as smollm2, a URL, or hf:OWNER/REPO[:FILE or QUANT]", "model",
                     0});
  const auto pulled = PullWithProgress(invocation.settings, invocation.words.front());
  if (!pulled) return Complain(pulled.error());
  const char* how = pulled->was_there ? "is here" : "fetched";
  const char* checked = pulled->verified ? ", SHA-256 checked" : pulled->was_there ? "" : ", no SHA-256 to check";
  const std::string size = pulled->bytes != 0 ? ", " + FormatBytes(pulled->bytes) : "";
  fmt::print(stderr, "{}{}{}\n", how, size, checked);
  fmt::print("{}\n", pulled->path);
  return kExitOk;
}

}  // namespace headrace
