#include "chat/command.h"

#include <fmt/format.h>

#include <vector>

#include "chat/chat_settings.h"
#include "config/near_names.h"

namespace headrace {
namespace {

struct CommandSpec {
  std::string_view word;
  ChatCommand::Name name;
  std::string_view usage;  // "" for a second spelling
  std::string_view what;
};

constexpr CommandSpec kCommands[] = {
    {"/set", ChatCommand::Name::kSet, "/set NAME VALUE", "VALUE may be default; NAME is one of"},
    {"/show", ChatCommand::Name::kShow, "/show", "model, settings and how full the context is"},
    {"/clear", ChatCommand::Name::kClear, "/clear", "forget the conversation, keep the settings"},
    {"/save", ChatCommand::Name::kSave, "/save FILE", "write the conversation as JSON"},
    {"/help", ChatCommand::Name::kHelp, "/help", "this text"},
    {"/?", ChatCommand::Name::kHelp, "", ""},
    {"/bye", ChatCommand::Name::kBye, "/bye", "end; so does Ctrl-D"},
    {"/exit", ChatCommand::Name::kBye, "", ""},
    {"/quit", ChatCommand::Name::kBye, "", ""},
};

constexpr std::string_view kBlanks = " \t";

std::string_view WithoutLeadingBlanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? std::string_view() : text.substr(first);
}

// Few enough a line for a window of 80 columns.
std::string SettingNameLines() {
  constexpr size_t kNamesOfALine = 4;
  std::string out;
  const std::vector<std::string>& names = ChatSettingNames();
  for (size_t i = 0; i < names.size(); ++i) {
    if (i % kNamesOfALine == 0) out += fmt::format("  {:<16} ", "");
    out += names[i] + (i + 1 == names.size() ? "\n" : (i + 1) % kNamesOfALine == 0 ? ",\n" : ", ");
  }
  return out + fmt::format("  {:<16} stop is a text, or JSON such as [\"\\n\", \"END\"]\n", "");
}

}  // namespace

Result<ChatCommand> ChatCommand::Parse(std::string_view text) {
  const size_t end = std::min(text.find_first_of(kBlanks), text.size());
  const std::string_view word = text.substr(0, end);
  std::vector<std::string> words;
  for (const CommandSpec& spec : kCommands) {
    if (spec.word == word) return ChatCommand{spec.name, std::string(WithoutLeadingBlanks(text.substr(end)))};
    words.emplace_back(spec.word);
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("there is no command '{}'.{} /help lists them; to send this as a message, put it between \"\"\".",
                  word.substr(0, 60), NearSentence(word, words)));
}

SettingWords SplitSetting(std::string_view argument) {
  const size_t end = std::min(argument.find_first_of(kBlanks), argument.size());
  return {argument.substr(0, end), WithoutLeadingBlanks(argument.substr(end))};
}

std::string CommandHelp() {
  std::string out;
  for (const CommandSpec& spec : kCommands) {
    if (!spec.usage.empty()) out += fmt::format("  {:<16} {}\n", spec.usage, spec.what);
    if (spec.name == ChatCommand::Name::kSet) out += SettingNameLines();
  }
  return out +
         "  \"\"\"              starts and ends a message of several lines\n"
         "  Ctrl-C           stops an answer\n";
}

}  // namespace headrace
