#include "config/settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "config/environment.h"
#include "config/option_value.h"

namespace headrace {
namespace {

Status ApplyFile(const ConfigFile* file, Setting& setting) {
  if (file == nullptr) return {};
  const auto at = std::ranges::find(file->settings, setting.spec, &FileSetting::spec);
  if (at == file->settings.end()) return {};
  setting.texts = at->texts;
  setting.origin = SettingOrigin::kFile;
  setting.place = fmt::format("{}, line {}", file->name, at->line);
  return {};  // checked when the file was read
}

Status ApplyEnvironment(const EnvironmentReader& environment, Setting& setting) {
  const std::string name = EnvironmentName(*setting.spec);
  const char* value = setting.spec->flag_only ? nullptr : environment(name.c_str());
  if (value == nullptr || *value == '\0' || IsFromKubernetes(name, value)) return {};
  setting.texts = {value};
  // Several texts are separated by commas here; who needs a comma in one uses the file.
  if (IsList(setting.spec->kind)) {
    setting.texts.clear();
    for (std::string_view rest = value;;) {
      const size_t end = std::min(rest.find(','), rest.size());
      if (end > 0) setting.texts.emplace_back(rest.substr(0, end));
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
  }
  setting.origin = SettingOrigin::kEnvironment;
  setting.place = name;
  return CheckOptionValue(*setting.spec, setting.texts, name);
}

Status ApplyFlag(const FlagValues& flags, const FlagSpellings& spellings, Setting& setting) {
  const auto at = flags.find(setting.spec->name);
  if (at == flags.end()) return {};
  setting.texts = at->second;
  setting.origin = SettingOrigin::kFlag;
  const auto typed = spellings.find(setting.spec->name);
  setting.place = typed != spellings.end() ? typed->second : "--" + std::string(setting.spec->name);
  return CheckOptionValue(*setting.spec, setting.texts, setting.place);
}

}  // namespace

std::string_view SettingOriginName(SettingOrigin origin) {
  switch (origin) {
    case SettingOrigin::kDefault:
      return "default";
    case SettingOrigin::kFile:
      return "file";
    case SettingOrigin::kEnvironment:
      return "environment";
    case SettingOrigin::kFlag:
      return "flag";
  }
  return "";
}

Result<Settings> Settings::Resolve(const FlagValues& flags, const EnvironmentReader& environment,
                                   const ConfigFile* file, const FlagSpellings& spellings) {
  Settings settings;
  for (const OptionSpec& spec : OptionTable()) {
    Setting setting{.spec = &spec};
    if (!spec.default_value.empty()) setting.texts = {std::string(spec.default_value)};
    HR_RETURN_IF_ERROR(ApplyFile(file, setting));
    HR_RETURN_IF_ERROR(ApplyEnvironment(environment, setting));
    HR_RETURN_IF_ERROR(ApplyFlag(flags, spellings, setting));
    if (spec.kind == OptionKind::kChoice)
      for (std::string& text : setting.texts) text = std::string(ChoiceOf(spec, text));
    settings.settings_.push_back(std::move(setting));
  }
  return settings;
}

const Setting& Settings::Get(std::string_view name) const {
  const auto at = std::ranges::find(settings_, name, [](const Setting& s) { return s.spec->name; });
  CHECK(at != settings_.end());
  return *at;
}

std::string Settings::Text(std::string_view name) const { return Has(name) ? Get(name).texts.front() : std::string(); }
std::vector<std::string> Settings::Texts(std::string_view name) const { return Get(name).texts; }
uint64_t Settings::Bytes(std::string_view name) const { return Has(name) ? ParseBytes(Text(name)).value_or(0) : 0; }
bool Settings::Switch(std::string_view name) const { return Has(name) && ParseSwitch(Text(name)).value_or(false); }

int64_t Settings::Integer(std::string_view name) const {
  if (!Has(name)) return 0;
  const bool is_tokens = Get(name).spec->kind == OptionKind::kTokens;
  return (is_tokens ? ParseTokens(Text(name)) : ParseInteger(Text(name))).value_or(0);
}

double Settings::Number(std::string_view name) const {
  if (!Has(name)) return 0;
  const bool is_time = Get(name).spec->kind == OptionKind::kSeconds;
  return (is_time ? ParseSeconds(Text(name)) : ParseNumber(Text(name))).value_or(0);
}

}  // namespace headrace
