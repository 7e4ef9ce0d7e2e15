#include <fmt/format.h>

#include "command.h"
#include "completion.h"
#include "config/option_table.h"

namespace headrace {

std::string ZshCompletion() {
  std::string commands, arms;
  for (const CommandSpec& command : CommandTable()) {
    commands += fmt::format("    {}\n", ShellQuoted(fmt::format("{}:{}", command.name, command.help)));
    std::string specs;
    for (const OptionSpec& spec : OptionTable()) {
      if ((spec.commands & command.bit) == 0) continue;
      std::string help(spec.help);
      // ':' and brackets end a description in zsh.
      for (char& c : help) c = c == ':' || c == '[' || c == ']' ? ',' : c;
      const std::string value = spec.kind == OptionKind::kSwitch   ? ""
                                : spec.kind == OptionKind::kFile   ? ":file:_files"
                                : spec.kind == OptionKind::kFolder ? ":folder:_files -/"
                                : spec.kind == OptionKind::kChoice ? fmt::format(":value:({})", spec.choices)
                                                                   : fmt::format(":{}:", spec.value_name);
      specs += " \\\n        " + ShellQuoted(fmt::format("--{}[{}]{}", spec.name, help, value));
    }
    const std::string first = command.word_choices == "MODEL"
                                  ? " \\\n        '*:model:{ compadd -- $(" +
                                        std::string("headrace list 2>/dev/null | awk \"NR > 1 {print \\$1}\"") + ") " +
                                        PullableNames() + "; _files }'"
                              : command.word_choices.empty()
                                  ? ""
                                  : " \\\n        " + ShellQuoted(fmt::format("1:what:({})", command.word_choices));
    arms += fmt::format(
        "    {}) _arguments '--help[show the flags]'{}{} ;;\n",
        command.alias.empty() ? std::string(command.name) : fmt::format("{}|{}", command.name, command.alias), specs,
        first);
  }
  return fmt::format(
      "#compdef headrace\n# zsh completion of headrace. In a folder of $fpath: headrace completion zsh > "
      "_headrace\n_headrace() {{\n  local -a commands=(\n{}  )\n"
      "  if ((CURRENT == 2)); then\n    _describe command commands\n    return\n  fi\n  local command=$words[2]\n  "
      "shift words\n  ((CURRENT--))\n  case $command in\n{}  esac\n}}\n"
      "if [[ $funcstack[1] == _headrace ]]; then _headrace \"$@\"; else compdef _headrace headrace; fi\n",
      commands, arms);
}

}  // namespace headrace
