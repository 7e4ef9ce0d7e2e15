// argv as a command, its words and its flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "command.h"
#include "config/settings.h"

namespace headrace {

struct CommandLine {
  const CommandSpec* command = nullptr;
  std::vector<std::string> words;
  FlagValues flags;
  FlagSpellings spellings;
  std::vector<std::string> ignored;  // flags of vLLM that change nothing here, as typed
  // The last word that a flag of many values took; it may have been meant as the MODEL. "": none.
  std::string last_taken;
};

// kInvalidArgument with what is wrong, near names and which --help tells more. `arguments` are without the program's
// name. A word that begins with "--" is never a value; behind "--" all are words.
Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments);

}  // namespace headrace
