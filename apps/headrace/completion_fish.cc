#include <fmt/format.h>

#include "command.h"
#include "completion.h"
#include "config/option_table.h"

namespace headrace {
namespace {

bool IsPath(const OptionSpec& spec) { return spec.kind == OptionKind::kFile || spec.kind == OptionKind::kFolder; }

}  // namespace

std::string FishCompletion() {
  std::string out =
      "# fish completion of headrace. headrace completion fish > ~/.config/fish/completions/headrace.fish\ncomplete -c "
      "headrace -f\n";
  for (const CommandSpec& command : CommandTable()) {
    out += fmt::format("complete -c headrace -n __fish_use_subcommand -a {} -d {}\n", command.name,
                       ShellQuoted(command.help));
    const std::string when = fmt::format("complete -c headrace -n '__fish_seen_subcommand_from {}{}{}'", command.name,
                                         command.alias.empty() ? "" : " ", command.alias);
    if (command.word_choices == "MODEL")
      out += fmt::format("{} -F -a \"({} ; printf '%s\\n' {})\"\n", when,
                         "headrace list 2>/dev/null | awk 'NR > 1 {print \\$1}'", PullableNames());
    else if (!command.word_choices.empty())
      out += fmt::format("{} -a '{}'\n", when, command.word_choices);
    for (const OptionSpec& spec : OptionTable()) {
      if ((spec.commands & command.bit) == 0) continue;
      const std::string value = spec.kind == OptionKind::kSwitch   ? ""
                                : IsPath(spec)                     ? " -r -F"
                                : spec.kind == OptionKind::kChoice ? fmt::format(" -x -a '{}'", spec.choices)
                                                                   : " -x";
      out += fmt::format("{} -l {}{} -d {}\n", when, spec.name, value, ShellQuoted(spec.help));
    }
  }
  return out;
}

}  // namespace headrace
