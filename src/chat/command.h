// The commands of the chat. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

struct ChatCommand {
  enum class Name { kSet, kShow, kClear, kSave, kHelp, kBye };
  Name name = Name::kHelp;
  std::string argument;  // the rest of the line

  // `text` starts with '/'. kInvalidArgument for an unknown command, with near names.
  static Result<ChatCommand> Parse(std::string_view text);
};

// "temperature 0.2" as its two halves, blanks around them dropped.
struct SettingWords {
  std::string_view name, value;
};
SettingWords SplitSetting(std::string_view argument);

std::string CommandHelp();

}  // namespace headrace
