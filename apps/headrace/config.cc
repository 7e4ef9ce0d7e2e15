// headrace config show|check
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/log.h"
#include "command.h"
#include "config/option_value.h"
#include "exit_code.h"

namespace headrace {
namespace {

// As the configuration file would say it, so that the output can become one.
std::string Shown(const Setting& setting) {
  const auto quoted = [](std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\')
        out += {'\\', c};
      else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
        out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
      else
        out += c;
    }
    return out + "\"";
  };
  if (setting.texts.empty()) return "";
  switch (setting.spec->kind) {
    case OptionKind::kInteger:
    case OptionKind::kNumber:
    case OptionKind::kSwitch:
      return setting.texts.front();
    case OptionKind::kTokens: {
      const std::string& text = setting.texts.front();
      return ParseInteger(text) ? text : quoted(text);
    }
    case OptionKind::kTexts:
    case OptionKind::kNames: {
      std::string out;
      for (const std::string& text : setting.texts) out += (out.empty() ? "" : ", ") + quoted(text);
      return "[" + out + "]";
    }
    default:
      return quoted(setting.texts.front());
  }
}

void Print(const Settings& settings, bool with_origin) {
  for (const Setting& setting : settings.all()) {
    if (setting.spec->flag_only) continue;
    const std::string key = FileKey(*setting.spec);
    // A key without a value is a comment, so that the whole stays TOML; so is what the file does not take.
    const bool secret = setting.spec->kind == OptionKind::kSecret;
    const std::string line = secret && !setting.texts.empty() ? "# " + key + " = (set, not shown)"
                             : setting.texts.empty()          ? "# " + key + " ="
                                                              : key + " = " + Shown(setting);
    const std::string origin(SettingOriginName(setting.origin));
    if (!with_origin)
      fmt::print("{}\n", line);
    else
      fmt::print("{:<48} # {}\n", line, setting.place.empty() ? origin : origin + ": " + EscapeForLog(setting.place));
  }
}

}  // namespace

int ConfigCommand(const Invocation& invocation) {
  const std::string what = invocation.words.empty() ? "show" : invocation.words.front();
  if (what == "check") {  // main has read all layers by now
    fmt::print("the configuration is sound\n");
    return kExitOk;
  }
  if (what != "show")
    return Complain(
        {ErrorCode::kInvalidArgument, "config knows show and check, not '" + EscapeForLog(what, 60) + "'", "", 0});
  Print(invocation.settings, invocation.settings.Switch("origin"));
  return kExitOk;
}

}  // namespace headrace
