// Variables named HEADRACE_... that no option reads: slips, and what Kubernetes puts there. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headrace {

// A service named "headrace" puts HEADRACE_PORT=tcp://10.0.0.1:80, HEADRACE_SERVICE_HOST, HEADRACE_PORT_80_TCP and the
// like into every pod of its namespace (docker links do the same). They are no settings.
bool IsFromKubernetes(std::string_view name, std::string_view value);

// One line for each variable that looks like a setting and is none, with near names, and one for all of Kubernetes.
// `variables` are "NAME=value", as environ has them; values are never repeated.
std::vector<std::string> EnvironmentWarnings(const std::vector<std::string_view>& variables);

}  // namespace headrace
