// A replay's report for a person and for a program. Pure functions.
#pragma once

#include <string>

#include "simulate/replay.h"

namespace headrace {

// `wall_seconds`: what the simulation itself took.
std::string ReplayAsText(const ReplayReport& report, const ReplayOptions& options, double wall_seconds);
std::string ReplayAsJson(const ReplayReport& report, double wall_seconds);

}  // namespace headrace
