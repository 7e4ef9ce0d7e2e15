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

// One arm of bash's `case $prev`. Without a match `-o default` completes file names: folders, blanks and quotes are
// then readline's work.
std::string BashValueArm(const OptionSpec& spec) {
  std::string names = "--" + std::string(spec.name);
  for (const std::string_view alias : Words(spec.aliases)) names += "|--" + std::string(alias);
  if (spec.kind == OptionKind::kFile) return fmt::format("    {}) return ;;\n", names);
  if (spec.kind == OptionKind::kFolder)
    return fmt::format("    {}) _headrace_options +o default -o dirnames; return ;;\n", names);
  if (spec.kind == OptionKind::kChoice)
    return fmt::format("    {}) _headrace_words \"{}\"; return ;;\n", names, spec.choices);
  return fmt::format("    {}) _headrace_words \"\"; return ;;\n", names);
}

constexpr std::string_view kInstalled = "headrace list 2>/dev/null | awk 'NR > 1 {print $1}'";

constexpr std::string_view kFunctions =
    R"(# bash completion of headrace. In ~/.bashrc: source <(headrace completion bash)
_headrace_options() { compopt "$@" 2>/dev/null; }
_headrace_words() {
  _headrace_options +o default
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}
# Names, and files where the word may be one; with no name that fits, only files.
_headrace_models() {
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
  ((${#COMPREPLY[@]} == 0)) && return
  local files
  mapfile -t files < <(compgen -f -- "$cur")
  ((${#files[@]} > 0)) && _headrace_options -o filenames
  COMPREPLY+=("${files[@]}")
}
)";

}  // namespace

std::string BashCompletion() {
  std::string flags, words, values;
  for (const CommandSpec& command : CommandTable()) {
    std::string names;
    for (const OptionSpec& spec : OptionTable())
      if ((spec.commands & command.bit) != 0) names += fmt::format(" --{}", spec.name);
    const std::string arm =
        command.alias.empty() ? std::string(command.name) : fmt::format("{}|{}", command.name, command.alias);
    flags += fmt::format("      {}) _headrace_words \"--help{}\" ;;\n", arm, names);
    // rm takes no path.
    if (command.word_choices == "MODEL" && command.name == "rm")
      words += fmt::format("      {}) _headrace_words \"$({})\" ;;\n", arm, kInstalled);
    else if (command.word_choices == "MODEL")
      words += fmt::format("      {}) _headrace_models \"$({}) {}\" ;;\n", arm, kInstalled, PullableNames());
    else
      words += fmt::format("      {}) _headrace_words \"{}\" ;;\n", arm, command.word_choices);
  }
  for (const OptionSpec& spec : OptionTable())
    if (spec.kind != OptionKind::kSwitch) values += BashValueArm(spec);
  return std::string(kFunctions) + fmt::format(R"(_headrace() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _headrace_words "{} help --help --version"
    return
  fi
  # bash takes --flag=value apart at the sign.
  [[ $cur == = ]] && cur=
  [[ $prev == = ]] && prev=${{COMP_WORDS[COMP_CWORD-2]}}
  case $prev in
{}  esac
  if [[ $cur == -* ]]; then
    case $command in
{}    esac
  else
    case $command in
{}      help) _headrace_words "all {}" ;;
    esac
  fi
}}
complete -o default -F _headrace headrace
)",
                                               CommandNames(), values, flags, words, CommandNames());
}

}  // namespace headrace
