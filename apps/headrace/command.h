// The commands, in one table: the command line, the help and the completions are made from it and from config's option
// table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/settings.h"

namespace headrace {

struct Invocation {
  std::vector<std::string> words;  // positional arguments
  Settings settings;
  std::string last_taken;  // see CommandLine
};

struct CommandSpec {
  std::string_view name;
  std::string_view alias;
  std::string_view arguments;  // as the help shows them
  std::string_view help;
  uint32_t bit = 0;  // which options it takes; 0: none
  size_t words_max = 0;
  std::string_view word_choices;  // what the first word may be, separated by blanks; "MODEL": a model
  int (*run)(const Invocation&) = nullptr;
};

std::span<const CommandSpec> CommandTable();
const CommandSpec* FindCommand(std::string_view name);

// Each in the file of its name. They give the exit code.
int ServeCommand(const Invocation& invocation);
int RunCommand(const Invocation& invocation);
int PullCommand(const Invocation& invocation);
int ListCommand(const Invocation& invocation);
int ShowCommand(const Invocation& invocation);
int RmCommand(const Invocation& invocation);
int BenchCommand(const Invocation& invocation);
int SimulateCommand(const Invocation& invocation);
int DoctorCommand(const Invocation& invocation);
int ConfigCommand(const Invocation& invocation);
int CompletionCommand(const Invocation& invocation);
int VersionCommand(const Invocation& invocation);

}  // namespace headrace
