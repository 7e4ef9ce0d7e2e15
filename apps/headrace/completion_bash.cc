#include <fmt/format.h>

#include "command.h"
#include "completion.h"
#include "config/option_table.h"

namespace headrace {
namespace {

std::string CommandNames() {
  std::string out;
  for (const CommandSpec& command : CommandTable()) out.append(out.empty() ? "" : " ").append(command.name);
  return out;
}

// One arm of bash's `case $prev`.
std::string BashValueArm(const OptionSpec& spec) {
  std::string names = "--" + std::string(spec.name);
  for (const std::string_view alias : Words(spec.aliases)) names += "|--" + std::string(alias);
  if (spec.kind == OptionKind::kFile)
    return fmt::format("    {}) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n", names);
  if (spec.kind == OptionKind::kFolder)
    return fmt::format("    {}) COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n", names);
  if (spec.kind == OptionKind::kChoice)
    return fmt::format("    {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return ;;\n", names, spec.choices);
  return fmt::format("    {}) return ;;\n", names);
}

constexpr std::string_view kInstalled = "headrace list 2>/dev/null | awk 'NR > 1 {print $1}'";

}  // namespace

std::string BashCompletion() {
  std::string flags, words, values;
  for (const CommandSpec& command : CommandTable()) {
    std::string names;
    for (const OptionSpec& spec : OptionTable())
      if ((spec.commands & command.bit) != 0) names += fmt::format(" --{}", spec.name);
    const std::string arm =
        command.alias.empty() ? std::string(command.name) : fmt::format("{}|{}", command.name, command.alias);
    flags += fmt::format("      {}) COMPREPLY=($(compgen -W \"--help{}\" -- \"$cur\")) ;;\n", arm, names);
    if (command.word_choices == "MODEL")
      words +=
          fmt::format("      {}) COMPREPLY=($(compgen -W \"$({}) {}\" -- \"$cur\") $(compgen -f -- \"$cur\")) ;;\n",
                      arm, kInstalled, command.name == "rm" ? "" : PullableNames());
    else if (!command.word_choices.empty())
      words += fmt::format("      {}) COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")) ;;\n", arm, command.word_choices);
  }
  for (const OptionSpec& spec : OptionTable())
    if (spec.kind != OptionKind::kSwitch) values += BashValueArm(spec);
  return fmt::format(R"(# bash completion of headrace. In ~/.bashrc: source <(headrace completion bash)
_headrace() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{} help --help --version" -- "$cur"))
    return
  fi
  case $prev in
{}  esac
  if [[ $cur == -* ]]; then
    case $command in
{}    esac
  else
    case $command in
{}      help) COMPREPLY=($(compgen -W "all {}" -- "$cur")) ;;
    esac
  fi
}}
complete -F _headrace headrace
)",
                     CommandNames(), values, flags, words, CommandNames());
}

}  // namespace headrace
