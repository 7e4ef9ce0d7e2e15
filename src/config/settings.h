// Every option's value and the layer that set it: flag over environment over file over default. Immutable after
// Resolve; any thread. Invariant: every value passed CheckOptionValue, so that reading one cannot fail.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/config_file.h"
#include "config/option_table.h"

namespace headrace {

enum class SettingOrigin : uint8_t { kDefault, kFile, kEnvironment, kFlag };
std::string_view SettingOriginName(SettingOrigin origin);

struct Setting {
  const OptionSpec* spec = nullptr;
  std::vector<std::string> texts;  // none: the option has no value
  SettingOrigin origin = SettingOrigin::kDefault;
  std::string place;  // "--port", "HEADRACE_PORT", "headrace.toml, line 3"
};

// What the command line gave, by option name (not alias).
using FlagValues = std::map<std::string, std::vector<std::string>, std::less<>>;
// How a flag was typed, by option name: "--max_model_len"; missing ones as the option is named.
using FlagSpellings = std::map<std::string, std::string, std::less<>>;
// nullptr: not set.
using EnvironmentReader = std::function<const char*(const char* name)>;

class Settings {
 public:
  // `file` may be nullptr. kInvalidArgument naming flag or variable. An empty variable counts as not set.
  static Result<Settings> Resolve(const FlagValues& flags, const EnvironmentReader& environment, const ConfigFile* file,
                                  const FlagSpellings& spellings = {});

  // REQUIRES: the table has an option of that name and of a fitting kind. Without a value: "", 0, false, {}.
  std::string Text(std::string_view name) const;
  std::vector<std::string> Texts(std::string_view name) const;
  int64_t Integer(std::string_view name) const;  // kInteger and kTokens
  double Number(std::string_view name) const;    // kNumber and kSeconds
  uint64_t Bytes(std::string_view name) const;
  bool Switch(std::string_view name) const;
  bool Has(std::string_view name) const { return !Get(name).texts.empty(); }

  const Setting& Get(std::string_view name) const;
  const std::vector<Setting>& all() const { return settings_; }  // in the table's order

 private:
  std::vector<Setting> settings_;
};

}  // namespace headrace
