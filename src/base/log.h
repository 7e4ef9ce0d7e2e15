// Process log on stderr: text for a terminal, JSON lines with --log-json. Values from outside are escaped, so that a
// request cannot forge a line. Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace headrace {

enum class LogFormat { kText, kJson };
// level: trace, debug, info, warn, error. Call once, before other threads start.
void StartLog(std::string_view level, LogFormat format);

// Control characters and bytes above 0x7E as \xNN, cut at max_bytes; safe to print.
std::string EscapeForLog(std::string_view text, size_t max_bytes = 200);

}  // namespace headrace

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
