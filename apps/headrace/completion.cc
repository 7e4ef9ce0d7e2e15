// headrace completion bash|zsh|fish
#include "completion.h"

#include <cstdio>

#include "catalog/catalog.h"
#include "command.h"
#include "exit_code.h"

namespace headrace {

int CompletionCommand(const Invocation& invocation) {
  const std::string shell = invocation.words.empty() ? "" : invocation.words.front();
  std::string script;
  if (shell == "bash")
    script = BashCompletion();
  else if (shell == "zsh")
    script = ZshCompletion();
  else if (shell == "fish")
    script = FishCompletion();
  else
    return Complain({ErrorCode::kInvalidArgument, "completion needs a shell: bash, zsh or fish", "", 0});
  std::fputs(script.c_str(), stdout);
  return kExitOk;
}

std::string PullableNames() {
  std::string out;
  for (const std::string& name : Catalog::BuiltIn().Names()) out += (out.empty() ? "" : " ") + name;
  return out;
}

std::string ShellQuoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace headrace
