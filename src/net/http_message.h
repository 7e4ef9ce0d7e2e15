// HTTP/1.x messages as values. A HttpRequest is what the client sent, checked but not decoded: the path keeps its
// percent signs. Immutable once handed to a handler, so any thread may read it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// ASCII letters compare equal in both cases; nothing else does.
bool EqualIgnoringCase(std::string_view a, std::string_view b);
// The first header of that name, or an empty view.
std::string_view FindHeader(const HttpHeaders& headers, std::string_view name);

struct HttpRequest {
  std::string method;
  std::string target;          // origin form: path and query as sent
  std::string path;            // up to '?'
  std::string query;           // after '?', without it
  HttpHeaders headers;         // as sent, in order
  std::string body;            // after Transfer-Encoding and Content-Encoding are undone
  std::string remote_address;  // "1.2.3.4:5678" or "[::1]:5678"

  std::string_view Header(std::string_view name) const { return FindHeader(headers, name); }
};

struct HttpResponse {
  int status = 200;
  HttpHeaders headers;  // Content-Length, Transfer-Encoding, Connection and Date are net's own
  std::string body;
};

}  // namespace headrace
