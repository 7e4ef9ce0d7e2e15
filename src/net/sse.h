// Server-sent events as bytes: https://html.spec.whatwg.org/multipage/server-sent-events.html. Pure functions.
// A comment is written between whole events only: some decoders turn a comment inside an event into an empty one.
#pragma once

#include <string>
#include <string_view>

namespace headrace {

// "data: …\n\n"; text with line ends becomes one data line for each of its lines.
std::string SseData(std::string_view json);
// "event: NAME\ndata: …\n\n". REQUIRES: the name holds no line end.
std::string SseEvent(std::string_view name, std::string_view json);
// ": text\n\n", which every client ignores; keeps proxies and clients from timing out.
std::string SseComment(std::string_view text);

}  // namespace headrace
