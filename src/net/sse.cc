#include "net/sse.h"

namespace headrace {
namespace {

// CR, LF and CRLF each end a line of an event stream; an unescaped one would end the field.
void AppendLines(std::string& out, std::string_view prefix, std::string_view text) {
  for (;;) {
    const size_t end = text.find_first_of("\r\n");
    out.append(prefix).append(text.substr(0, end)).push_back('\n');
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
  }
}

}  // namespace

std::string SseData(std::string_view json) {
  std::string out;
  out.reserve(json.size() + 8);  // "data: " and two line ends
  AppendLines(out, "data: ", json);
  out.push_back('\n');
  return out;
}

std::string SseEvent(std::string_view name, std::string_view json) {
  std::string out = "event: ";
  out.append(name).push_back('\n');
  return out + SseData(json);
}

std::string SseComment(std::string_view text) {
  std::string out;
  AppendLines(out, ": ", text);
  out.push_back('\n');
  return out;
}

}  // namespace headrace
