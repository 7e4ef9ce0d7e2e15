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
};

// kInvalidArgument with what is wrong, near names and which --help tells more. `arguments` are without the program's
// name.
Result<CommandLine> ParseCommandLine(std::vector<std::string> arguments);

// With --help, -h, --version or the command `help` among the arguments: the text to print instead of running. "": none.
std::string AnswerToHelp(const std::vector<std::string>& arguments);

}  // namespace headrace
