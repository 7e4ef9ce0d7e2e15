#include "help.h"

#include <fmt/format.h>

#include "config/option_table.h"

namespace headrace {
namespace {

constexpr std::string_view kExitCodes = R"(Exit codes
  0    done
  1    it was tried and failed
  2    a flag, variable, file or combination is wrong
  3    no such model, file or repository
  4    cannot serve: port taken or too little memory
  130  interrupted
)";

std::string FlagColumn(const OptionSpec& spec) {
  std::string out = "--" + std::string(spec.name);
  return spec.value_name.empty() ? out : out + " " + std::string(spec.value_name);
}

std::string OptionLine(const OptionSpec& spec) {
  std::string help(spec.help);
  if (spec.kind == OptionKind::kChoice) help += fmt::format(": {}", fmt::join(Words(spec.choices), ", "));
  const bool shows_default = !spec.default_value.empty() && spec.default_value != "false" && spec.default_value != "0";
  if (shows_default) help += fmt::format(" [{}]", spec.default_value);
  return fmt::format("  {:<29} {}\n", FlagColumn(spec), help);
}

// The options that have one of the bits, by group. `full` adds aliases, variable and key.
std::string OptionList(uint32_t bits, bool full) {
  std::string out;
  for (int g = 0; g < kOptionGroups; ++g) {
    const auto group = static_cast<OptionGroup>(g);
    bool titled = false;
    for (const OptionSpec& spec : OptionTable()) {
      if (spec.group != group || (spec.commands & bits) == 0) continue;
      if (!titled) out += std::string(OptionGroupTitle(group)) + "\n";
      titled = true;
      out += OptionLine(spec);
      if (!full) continue;
      std::string more;
      for (const std::string_view alias : Words(spec.aliases)) more += fmt::format("also --{}; ", alias);
      if (!spec.flag_only) more += EnvironmentName(spec);
      if (!spec.flag_only && spec.kind != OptionKind::kSecret) more += fmt::format("; {} in the file", FileKey(spec));
      if (!more.empty()) out += fmt::format("  {:<29} {}\n", "", more);
    }
  }
  return out;
}

std::string CommandLines() {
  std::string out;
  for (const CommandSpec& command : CommandTable())
    out += fmt::format("  {:<29} {}\n", fmt::format("{} {}", command.name, command.arguments), command.help);
  return out;
}

}  // namespace

std::string VersionLine() { return "headrace " HEADRACE_VERSION; }

std::string HelpScreen() {
  return "Headrace serves a language model on this machine over the APIs that clients already speak.\n\n"
         "Usage: headrace COMMAND [ARGUMENTS] [FLAGS]\n\n"
         "Commands\n" +
         CommandLines() +
         "\nExamples\n"
         "  headrace run smollm2 \"Why is the sky blue?\"\n"
         "  headrace serve smollm2 --port 8080\n"
         "  headrace pull hf:OWNER/REPO:Q4_K_M\n"
         "\n"
         "MODEL is a name (headrace list), a path to a .gguf file, or anything that pull takes.\n"
         "Every flag can also be set as HEADRACE_... or in a file (headrace config show --origin).\n"
         "Flags of a command: headrace serve --help. Everything: headrace --help all.\n";
}

std::string HelpForCommand(const CommandSpec& command) {
  std::string out =
      fmt::format("Usage: headrace {}{}{}\n{}\n", command.name, command.arguments.empty() ? "" : " ",
                  fmt::format("{}{}", command.arguments, command.bit != 0 ? " [FLAGS]" : ""), command.help);
  if (!command.alias.empty()) out += fmt::format("Also: headrace {}\n", command.alias);
  if (command.bit != 0) out += OptionList(command.bit, false);
  return out;
}

std::string HelpAll() {
  std::string out =
      HelpScreen() +
      "\nAll flags, with their other spellings, environment variables and keys of the configuration file\n";
  for (const CommandSpec& command : CommandTable()) {
    if (command.bit == 0) continue;
    std::string names;
    for (const OptionSpec& spec : OptionTable())
      if ((spec.commands & command.bit) != 0) names += fmt::format(" --{}", spec.name);
    out += fmt::format("\n{}:{}\n", command.name, names);
  }
  out += "\n" + OptionList(UINT32_MAX, true) + "\n";
  out +=
      "Precedence: flag, then environment, then file (--config FILE, HEADRACE_CONFIG, else headrace/headrace.toml in\n"
      "$XDG_CONFIG_HOME or ~/.config), then default.\n"
      "Others: HEADRACE_HF_ENDPOINT (another hub than Hugging Face), HF_TOKEN (its login), XDG_DATA_HOME.\n\n";
  return out + std::string(kExitCodes);
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
