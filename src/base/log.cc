#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>

namespace headrace {
namespace {

// In front of a payload that is JSON members already; no message begins with it, for what comes from outside is
// escaped.
constexpr char kMembers = '\x1e';
constexpr size_t kValueBytesShown = 200;
std::atomic<bool> log_json{false};

void AppendJson(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out += c;
    }
  }
  out += '"';
}

// %* of the pattern: the message as a member, or the fields of LogEvent.
class MembersFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/, spdlog::memory_buf_t& dest) override {
    std::string_view payload(message.payload.data(), message.payload.size());
    std::string out;
    if (payload.starts_with(kMembers)) {
      out = payload.substr(1);
    } else {
      out = "\"message\":";
      AppendJson(out, payload);
    }
    dest.append(out.data(), out.data() + out.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<MembersFlag>(); }
};

std::string TextValue(std::string_view text) {
  if (text.empty()) return "-";
  std::string out = EscapeForLog(text, kValueBytesShown);
  const bool bare = text != "-" && out.find_first_of(" =") == std::string::npos;
  return bare ? out : '"' + out + '"';
}

}  // namespace

void StartLog(std::string_view level, LogFormat format) {
  std::shared_ptr<spdlog::logger> logger;
  log_json = format == LogFormat::kJson;
  if (format == LogFormat::kJson) {
    logger = std::make_shared<spdlog::logger>("headrace", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    auto formatter = std::make_unique<spdlog::pattern_formatter>();
    formatter->add_flag<MembersFlag>('*').set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%*})");
    logger->set_formatter(std::move(formatter));
  } else {
    logger = std::make_shared<spdlog::logger>("headrace", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    logger->set_pattern("%H:%M:%S.%e %^%l%$ %v");
  }
  logger->set_level(spdlog::level::from_str(std::string(level)));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

std::string EscapeForLog(std::string_view text, size_t max_bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char c : text.substr(0, max_bytes)) {
    if (c < 0x20 || c > 0x7e || c == '"' || c == '\\') {
      out += {'\\', 'x', kHex[c >> 4], kHex[c & 15]};
    } else {
      out += static_cast<char>(c);
    }
  }
  if (text.size() > max_bytes) out += "...";
  return out;
}

void LogEvent(spdlog::level::level_enum level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(level)) return;
  const bool json = log_json.load(std::memory_order_relaxed);
  std::string out = json ? std::string(1, kMembers) + "\"message\":" : std::string(event);
  if (json) AppendJson(out, event);
  for (const LogField& field : fields) {
    out += json ? fmt::format(",\"{}\":", field.name) : fmt::format(" {}=", field.name);
    if (const auto* number = std::get_if<int64_t>(&field.value)) {
      out += std::to_string(*number);
    } else if (json) {
      AppendJson(out, EscapeForLog(std::get<std::string_view>(field.value), kValueBytesShown));
    } else {
      out += TextValue(std::get<std::string_view>(field.value));
    }
  }
  spdlog::log(level, "{}", out);
}

}  // namespace headrace
