#include "net/http_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace headrace {
namespace {

// RFC 9110 and 6585. Clients go by the number; an unlisted one gets a neutral word.
constexpr std::pair<int, std::string_view> kReasons[] = {
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

bool IsFraming(std::string_view name) {
  return std::ranges::any_of(std::array{"Content-Length", "Transfer-Encoding", "Connection", "Date"},
                             [&](std::string_view own) { return EqualIgnoringCase(name, own); });
}

bool IsSafe(std::string_view name, std::string_view value) {
  const auto control = [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; };
  return !name.empty() && name.find_first_of(": \t") == std::string_view::npos && std::ranges::none_of(name, control) &&
         std::ranges::none_of(value, control);
}

}  // namespace

bool EqualIgnoringCase(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return Lower(x) == Lower(y); });
}

std::string_view FindHeader(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (EqualIgnoringCase(key, name)) return value;
  return {};
}

std::string_view ReasonPhrase(int status) {
  const auto* const found = std::ranges::find(kReasons, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kReasons) ? "Status" : found->second;
}

bool StatusHasBody(int status) { return status >= 200 && status != 204 && status != 304; }

std::string ResponseHead(int status, const HttpHeaders& headers, const HeadFraming& framing, int64_t unix_seconds) {
  // 1.1 also to a 1.0 client: the version says what we speak, the framing what it understands (RFC 9110, 6.2).
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, ReasonPhrase(status), HttpDate(unix_seconds));
  for (const auto& [name, value] : headers) {
    if (IsFraming(name)) continue;
    if (!IsSafe(name, value)) {
      LOG_WARN("response header '{}' left out: it holds a control byte", EscapeForLog(name));
      continue;
    }
    out.append(name).append(": ").append(value).append("\r\n");
  }
  if (framing.content_length && StatusHasBody(status))
    out += fmt::format("Content-Length: {}\r\n", *framing.content_length);
  if (framing.chunked) out += "Transfer-Encoding: chunked\r\n";
  if (framing.close)
    out += "Connection: close\r\n";
  else if (framing.http10)
    out += "Connection: keep-alive\r\n";
  return out += "\r\n";
}

std::string ChunkPrefix(size_t payload_bytes) { return fmt::format("{:x}\r\n", payload_bytes); }

std::string HttpDate(int64_t unix_seconds) {
  static constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t seconds = unix_seconds;
  std::tm t{};
  gmtime_r(&seconds, &t);
  // Not strftime: its names follow the locale.
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)], t.tm_mday,
                     kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

}  // namespace headrace
