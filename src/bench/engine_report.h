// A report as Markdown for people, JSON or CSV for programs. Pure; any thread.
#pragma once

#include <string>

#include "bench/engine_bench.h"

namespace headrace {

std::string ReportAsMarkdown(const EngineReport& report);
std::string ReportAsJson(const EngineReport& report);
// One line a row and a probe.
std::string ReportAsCsv(const EngineReport& report);

}  // namespace headrace
