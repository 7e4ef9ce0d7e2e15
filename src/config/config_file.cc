#include "config/config_file.h"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "config/near_names.h"
#include "config/option_value.h"

namespace headrace {
namespace {

std::unexpected<Error> Bad(const std::string& file, int line, const std::string& what, std::string field = {}) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}, line {}: {}", file, line, what), std::move(field));
}

// Texts as the other layers give them. nullopt: not a plain value.
std::optional<std::string> TextOf(const toml::node& node, OptionKind kind) {
  if (const auto value = node.value_exact<bool>()) {
    if (kind != OptionKind::kSwitch) return std::nullopt;
    return *value ? "true" : "false";
  }
  if (const auto value = node.value_exact<int64_t>()) return std::to_string(*value);
  if (const auto value = node.value_exact<double>()) return fmt::format("{}", *value);
  return node.value_exact<std::string>();
}

std::vector<std::string> FileKeys() {
  std::vector<std::string> keys;
  for (const OptionSpec& spec : OptionTable())
    if (!spec.flag_only && spec.kind != OptionKind::kSecret) keys.push_back(FileKey(spec));
  return keys;
}

Result<FileSetting> ReadSetting(const std::string& file, std::string_view key, const toml::node& node) {
  FileSetting setting{.spec = FindOption(key), .line = static_cast<int>(node.source().begin.line)};
  const std::string shown = EscapeForLog(key, 60);
  if (setting.spec == nullptr)
    return Bad(file, setting.line, "unknown key '" + shown + "'." + NearSentence(key, FileKeys()), std::string(shown));
  if (setting.spec->kind == OptionKind::kSecret)
    return Bad(file, setting.line,
               "'" + shown + "' is a secret, which no file of settings holds; " +
                   "use api_key_file, or HEADRACE_API_KEY in the environment",
               shown);
  if (setting.spec->flag_only)
    return Bad(file, setting.line, "'" + shown + "' can only be given on the command line", shown);
  if (const toml::array* list = node.as_array(); list != nullptr && IsList(setting.spec->kind)) {
    for (const toml::node& item : *list) {
      auto text = TextOf(item, OptionKind::kText);
      if (!text) return Bad(file, setting.line, "'" + shown + "' must be a list of texts", shown);
      setting.texts.push_back(std::move(*text));
    }
  } else {
    auto text = TextOf(node, setting.spec->kind);
    const bool wants_text = setting.spec->kind == OptionKind::kText || setting.spec->kind == OptionKind::kFile ||
                            setting.spec->kind == OptionKind::kFolder;
    if (wants_text && text && !node.is_string())
      return Bad(file, setting.line, "'" + shown + "' must be a text in quotes", shown);
    if (!text)
      return Bad(file, setting.line,
                 "'" + shown + "' must be one plain value, not a table, list or date" +
                     (node.is_boolean() ? ", nor true or false" : ""),
                 shown);
    setting.texts.push_back(std::move(*text));
  }
  HR_RETURN_IF_ERROR(
      CheckOptionValue(*setting.spec, setting.texts, fmt::format("{}, line {}: {}", file, setting.line, shown)));
  return setting;
}

}  // namespace

Result<ConfigFile> ParseConfigFile(std::string_view text, std::string name) {
  ConfigFile file{.name = std::move(name)};
  try {
    const toml::table root = toml::parse(text);
    for (const auto& [key, node] : root) {
      HR_ASSIGN_OR_RETURN(FileSetting setting, ReadSetting(file.name, key.str(), node));
      for (const FileSetting& other : file.settings)
        if (other.spec == setting.spec)
          return Bad(file.name, std::max(other.line, setting.line),
                     "'" + std::string(setting.spec->name) + "' is set twice, by two of its spellings",
                     std::string(setting.spec->name));
      file.settings.push_back(std::move(setting));
    }
  } catch (const toml::parse_error& e) {
    return Bad(file.name, static_cast<int>(e.source().begin.line), "not TOML: " + std::string(e.description()));
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kInvalidArgument, file.name + " cannot be read: " + e.what());
  }
  return file;
}

Result<ConfigFile> ReadConfigFile(const std::string& path) {
  auto text = ReadWholeFile(path, kConfigFileBytesMax);
  if (!text) {
    Error error = text.error();
    error.message = "configuration file: " + error.message;
    error.field = "config";
    return Fail(std::move(error));
  }
  return ParseConfigFile(*text, path);
}

std::string DefaultConfigPath() {
  const auto environment = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
  };
  std::string folder = environment("XDG_CONFIG_HOME");
  // The XDG base directory specification ignores relative paths.
  if (!folder.starts_with('/')) folder = environment("HOME") + "/.config";
  std::string path = folder + "/headrace/headrace.toml";
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? path : std::string();
}

}  // namespace headrace
