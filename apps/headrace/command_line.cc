#include "command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "base/log.h"
#include "config/near_names.h"
#include "config/option_value.h"
#include "help.h"

namespace headrace {
namespace {

std::string FlagNames(const OptionSpec& spec) {
  std::string names = "--" + std::string(spec.name);
  for (const std::string_view alias : Words(spec.aliases)) names += ",--" + std::string(alias);
  return names;
}

// Values stay texts: config checks them, in every layer by the same rules.
void AddOptions(CLI::App& app, const CommandSpec& command) {
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & command.bit) == 0) continue;
    if (spec.kind == OptionKind::kSwitch) {
      app.add_flag(FlagNames(spec));
      continue;
    }
    CLI::Option* option =
        app.add_option(FlagNames(spec))->type_size(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    // As vLLM reads it: --served-model-name takes all words up to the next flag.
    if (spec.value_name.ends_with("...")) option->expected(1, static_cast<int>(kOptionTextsMax));
  }
  app.add_option("words")->type_size(1)->expected(0, CLI::detail::expected_max_vector_size)->allow_extra_args();
}

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

std::unexpected<Error> UnknownFlag(const std::string& word, const CommandSpec& command) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> names;
  for (const OptionSpec& spec : OptionTable()) {
    if ((spec.commands & command.bit) == 0) continue;
    names.push_back("--" + std::string(spec.name));
    for (const std::string_view alias : Words(spec.aliases)) names.push_back("--" + std::string(alias));
  }
  std::string near = NearSentence(name, names);
  if (const OptionSpec* other = FindOption(name.substr(std::min(name.find_first_not_of('-'), name.size())));
      other != nullptr && near.empty())
    near = " Other commands have it.";
  return Usage("unknown flag '" + EscapeForLog(name, 60) + "' for " + std::string(command.name) + "." + near,
               command.name);
}

Result<CommandLine> Collect(const CLI::App& app, const CommandSpec& command) {
  CommandLine line{.command = &command};
  if (const auto rest = app.remaining(); !rest.empty()) return UnknownFlag(rest.front(), command);
  for (const OptionSpec& spec : OptionTable()) {
    const CLI::Option* option = app.get_option_no_throw("--" + std::string(spec.name));
    if ((spec.commands & command.bit) == 0 || option == nullptr || option->count() == 0) continue;
    std::vector<std::string> values = option->results();
    // Given twice, the last one counts, so that a script can append to its flags.
    if (spec.kind != OptionKind::kTexts) values.erase(values.begin(), values.end() - 1);
    line.flags.emplace(spec.name, std::move(values));
  }
  line.words = app.get_option("words")->results();
  if (line.words.size() > command.words_max)
    return Usage(std::string(command.name) + " does not take '" + EscapeForLog(line.words[command.words_max], 60) + "'",
                 command.name);
  return line;
}

}  // namespace

Result<CommandLine> ParseCommandLine(std::vector<std::string> arguments) {
  if (arguments.empty()) return Usage("a command is needed, such as run or serve", "");
  try {
    CLI::App app;
    app.set_help_flag("");
    app.require_subcommand(0, 1);
    app.allow_extras();
    for (const CommandSpec& command : CommandTable()) {
      CLI::App* sub = app.add_subcommand(std::string(command.name));
      sub->set_help_flag("");
      sub->allow_extras();
      if (!command.alias.empty()) sub->alias(std::string(command.alias));
      AddOptions(*sub, command);
    }
    std::ranges::reverse(arguments);  // CLI11 takes them from the back
    app.parse(arguments);
    const auto parsed = app.get_subcommands();
    const auto rest = app.remaining();
    if (!rest.empty()) return UnknownCommand(rest.front());
    if (parsed.empty()) return Usage("a command is needed, such as run or serve", "");
    return Collect(*parsed.front(), *FindCommand(parsed.front()->get_name()));
  } catch (const CLI::Error& e) {
    return Usage(e.what(), "");
  } catch (const std::exception& e) {
    return Usage(std::string("these arguments cannot be read: ") + e.what(), "");
  }
}

std::string AnswerToHelp(const std::vector<std::string>& arguments) {
  const CommandSpec* command = nullptr;
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& word = arguments[i];
    if (i == 0) command = FindCommand(word);
    const bool is_command = i == 0 && word == "help";
    if (i == 0 && (word == "--version" || word == "-V" || word == "-v")) return VersionLine() + "\n";
    if (!is_command && word != "-h" && word != "--help" && !word.starts_with("--help=")) continue;
    std::string topic = word.starts_with("--help=") ? word.substr(7) : i + 1 < arguments.size() ? arguments[i + 1] : "";
    if (topic == "all") return HelpAll();
    if (is_command || command == nullptr) command = FindCommand(topic);
    return command == nullptr ? HelpScreen() : HelpForCommand(*command);
  }
  return {};
}

}  // namespace headrace
