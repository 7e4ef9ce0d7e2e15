#include "config/environment.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "config/near_names.h"
#include "config/option_table.h"

namespace headrace {
namespace {

constexpr std::string_view kPrefix = "HEADRACE_";
constexpr size_t kWarningsMax = 20;  // shown lines

// Read elsewhere: by main, the catalogue, and the project's own scripts and tests.
constexpr std::array<std::string_view, 10> kKnown = {
    "HEADRACE_CONFIG", "HEADRACE_HF_ENDPOINT",    "HEADRACE_LAWS", "HEADRACE_BINARY",    "HEADRACE_NODE",
    "HEADRACE_PYTHON", "HEADRACE_CLIENTS_REEXEC", "HEADRACE_FUZZ", "HEADRACE_SANITIZED", "HEADRACE_SANITIZE"};

bool IsKnown(std::string_view name) {
  return name.starts_with("HEADRACE_TEST_") || name.starts_with("HEADRACE_SEED") ||
         std::ranges::find(kKnown, name) != kKnown.end();
}

// "": the variable is a setting.
std::string WarningFor(std::string_view name) {
  const std::string shown = EscapeForLog(name, 60);
  const OptionSpec* spec = FindOption([&] {
    std::string option(name.substr(kPrefix.size()));
    std::ranges::transform(option, option.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
    return option;
  }());
  if (spec != nullptr && spec->flag_only)
    return shown + " is ignored: --" + std::string(spec->name) + " can only be given on the command line";
  if (spec != nullptr && EnvironmentName(*spec) == name) return {};
  if (spec != nullptr) return shown + " is ignored: write " + EnvironmentName(*spec);
  std::vector<std::string> names;  // without the prefix, which would make all of them near
  for (const OptionSpec& option : OptionTable())
    if (!option.flag_only) names.push_back(EnvironmentName(option).substr(kPrefix.size()));
  std::string near;
  for (const std::string& other : NearOptionNames(name.substr(kPrefix.size()), names))
    near += (near.empty() ? " Near: " : ", ") + std::string(kPrefix) + other;
  return shown + " is ignored: no setting has this name." + near + (near.empty() ? "" : ".");
}

}  // namespace

bool IsFromKubernetes(std::string_view name, std::string_view value) {
  if (name == "HEADRACE_PORT") return value.starts_with("tcp://") || value.starts_with("udp://");
  return name.starts_with("HEADRACE_SERVICE_") || name.starts_with("HEADRACE_PORT_");
}

std::vector<std::string> EnvironmentWarnings(const std::vector<std::string_view>& variables) {
  std::vector<std::string> out;
  size_t injected = 0;
  for (const std::string_view variable : variables) {
    const std::string_view name = variable.substr(0, variable.find('='));
    if (!name.starts_with(kPrefix) || IsKnown(name)) continue;
    if (IsFromKubernetes(name, variable.substr(std::min(name.size() + 1, variable.size())))) {
      ++injected;
      continue;
    }
    std::string warning = WarningFor(name);
    if (!warning.empty() && out.size() < kWarningsMax) out.push_back(std::move(warning));
  }
  if (injected > 0)
    out.push_back(std::to_string(injected) +
                  " variables such as HEADRACE_SERVICE_HOST and HEADRACE_PORT=tcp://... are ignored: Kubernetes sets "
                  "them for a service named headrace (enableServiceLinks: false ends that)");
  return out;
}

}  // namespace headrace
