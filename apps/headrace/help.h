// The help texts, made from the tables of commands and options.
#pragma once

#include <string>
#include <vector>

#include "command.h"

namespace headrace {

std::string VersionLine();
// At most 40 lines with three examples: one screen.
std::string HelpScreen();
std::string HelpForCommand(const CommandSpec& command);
// Every command, option, variable, file key and exit code.
std::string HelpAll();

// With --help, -h, --version or the command `help` among the arguments: the text to print instead of running. "": none.
std::string AnswerToHelp(const std::vector<std::string>& arguments);

}  // namespace headrace
