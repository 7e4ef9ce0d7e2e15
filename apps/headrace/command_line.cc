#include "command_line.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "config/foreign_flags.h"
#include "config/near_names.h"
#include "config/option_value.h"

namespace headrace {
namespace {

std::unexpected<Error> Usage(const std::string& what, std::string_view command) {
  const std::string more = command.empty() ? "headrace --help" : "headrace " + std::string(command) + " --help";
  return Fail(ErrorCode::kInvalidArgument, what + " (" + more + " tells more)");
}

std::unexpected<Error> UnknownCommand(const std::string& word) {
  std::vector<std::string> names;
  for (const CommandSpec& command : CommandTable()) names.emplace_back(command.name);
  const std::string kind = word.starts_with('-') ? "flag" : "command";
  return Usage("unknown " + kind + " '" + EscapeForLog(word, 60) + "'." + NearSentence(word, names), "");
}

std::unexpected<Error> UnknownFlag(const std::string& flag, const CommandSpec& command) {
  std::vector<std::string> names;
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & command.bit) == 0) continue;
    names.push_back("--" + std::string(spec.name));
    for (const std::string_view alias : Words(spec.aliases)) names.push_back("--" + std::string(alias));
  }
  std::string near = NearSentence(flag, names);
  if (const OptionSpec* other = FindOption(flag.substr(std::min(flag.find_first_not_of('-'), flag.size())));
      other != nullptr && near.empty())
    near = " Other commands have it.";
  return Usage("unknown flag '" + EscapeForLog(flag, 60) + "' for " + std::string(command.name) + "." + near,
               command.name);
}

// Walks the arguments once, left to right.
class Parser {
 public:
  Parser(const CommandSpec& command, const std::vector<std::string>& arguments)
      : arguments_(arguments), line_{.command = &command} {}

  Result<CommandLine> Run() {
    for (at_ = 1; at_ < arguments_.size(); ++at_) {
      const std::string& word = arguments_[at_];
      if (word == "--") {
        line_.words.insert(line_.words.end(), arguments_.begin() + static_cast<std::ptrdiff_t>(at_) + 1,
                           arguments_.end());
        break;
      }
      if (word.size() > 1 && word.starts_with('-'))
        HR_RETURN_IF_ERROR(Flag(word));
      else
        line_.words.push_back(word);
    }
    const size_t words_max = line_.command->words_max;
    if (line_.words.size() > words_max)
      return Usage(
          std::string(line_.command->name) + " does not take '" + EscapeForLog(line_.words[words_max], 60) + "'",
          line_.command->name);
    return std::move(line_);
  }

 private:
  // A word that may be a value: the next one, unless a flag begins there. "-1" is a value.
  bool ValueFollows() const { return at_ + 1 < arguments_.size() && !arguments_[at_ + 1].starts_with("--"); }

  Status Flag(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    const OptionSpec* spec = flag.starts_with("--") ? FindOption(flag.substr(2)) : nullptr;
    if (const ForeignSwitch* set = FindForeignSwitch(flag); set != nullptr && !has_value) {
      spec = FindOption(set->option);
      if ((spec->commands & line_.command->bit) != 0) return Put(*spec, flag, {std::string(set->value)}), Status();
    }
    if (spec == nullptr || (spec->commands & line_.command->bit) == 0) return Foreign(flag, equals);
    std::vector<std::string> values;
    const bool greedy = spec->value_name.ends_with("...");
    if (has_value) {
      values = {word.substr(equals + 1)};
    } else if (spec->kind == OptionKind::kSwitch) {
      values = {"true"};
    } else {
      while (ValueFollows() && (greedy || values.empty())) values.push_back(arguments_[++at_]);
      if (values.empty())
        return Usage(EscapeForLog(flag, 60) + " needs a value: " + std::string(spec->value_name), line_.command->name);
      if (greedy) line_.last_taken = values.back();
    }
    Put(*spec, flag, std::move(values));
    return {};
  }

  // Given twice, the last one counts, so that a script can append to its flags; lists grow.
  void Put(const OptionSpec& spec, const std::string& flag, std::vector<std::string> values) {
    std::vector<std::string>& texts = line_.flags[std::string(spec.name)];
    if (!IsList(spec.kind)) texts.clear();
    texts.insert(texts.end(), std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
    line_.spellings[std::string(spec.name)] = flag;
  }

  // What vLLM takes and has nothing to change here.
  Status Foreign(const std::string& flag, size_t equals) {
    const ForeignFlag* foreign = line_.command->bit == kForServe ? FindForeignFlag(flag) : nullptr;
    if (foreign == nullptr) return UnknownFlag(flag, *line_.command);
    std::string shown = flag;
    if (!foreign->accepted.empty()) {
      if (equals == std::string::npos && !ValueFollows())
        return Usage(flag + " needs a value: " + std::string(foreign->accepted), line_.command->name);
      const std::string value = equals == std::string::npos ? arguments_[++at_] : arguments_[at_].substr(equals + 1);
      if (value != foreign->accepted)
        return Usage(flag + ": '" + EscapeForLog(value, 60) + "' is not taken, only '" +
                         std::string(foreign->accepted) + "': " + std::string(foreign->why),
                     line_.command->name);
      shown += " " + value;
    }
    line_.ignored.push_back(std::move(shown));
    return {};
  }

  const std::vector<std::string>& arguments_;
  size_t at_ = 0;
  CommandLine line_;
};

}  // namespace

Result<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments[0] == "--") return Usage("a command is needed, such as run or serve", "");
  const CommandSpec* command = FindCommand(arguments[0]);
  if (command == nullptr) return UnknownCommand(arguments[0]);
  return Parser(*command, arguments).Run();
}

}  // namespace headrace
