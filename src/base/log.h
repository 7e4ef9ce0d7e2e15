// Process log on stderr: text for a terminal, JSON lines with --log-json. Values from outside are escaped, so that a
// request cannot forge a line. Thread-safe.
#pragma once

#include <spdlog/spdlog.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace headrace {

enum class LogFormat { kText, kJson };
// level: trace, debug, info, warn, error. Call once, before other threads start.
void StartLog(std::string_view level, LogFormat format);

// Control characters and bytes above 0x7E as \xNN, cut at max_bytes; safe to print.
std::string EscapeForLog(std::string_view text, size_t max_bytes = 200);

struct LogField {
  LogField(std::string_view field_name, std::string_view text) : name(field_name), value(text) {}
  LogField(std::string_view field_name, std::integral auto number) : name(field_name), value(int64_t{number}) {}
  std::string_view name;
  std::variant<std::string_view, int64_t> value;  // borrowed for the call
};
// One line: `request id=7 model="a b" error=-`, or with --log-json a member for each field. A value with a blank or "="
// stands in quotes and all are escaped, so that no value can look like another field.
void LogEvent(spdlog::level::level_enum level, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace headrace

#define LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
