// The configuration file: TOML, flat, one key for each option that is not flag-only ("max_batch_tokens = 256").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/option_table.h"

namespace headrace {

constexpr uint64_t kConfigFileBytesMax = 1u << 20;

struct FileSetting {
  const OptionSpec* spec = nullptr;
  std::vector<std::string> texts;
  int line = 0;
};

struct ConfigFile {
  std::string name;  // for messages: as it was given
  std::vector<FileSetting> settings;
};

// Keys are options' names or aliases, with '_' or '-'. Unknown keys are an error that names near ones, as are values
// that the option does not take; each message begins "NAME, line N". An option set twice by two spellings is an error.
Result<ConfigFile> ParseConfigFile(std::string_view text, std::string name);
Result<ConfigFile> ReadConfigFile(const std::string& path);

// $XDG_CONFIG_HOME/headrace/headrace.toml, or below ~/.config; "" when there is no such file.
std::string DefaultConfigPath();

}  // namespace headrace
