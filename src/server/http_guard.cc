#include "server/http_guard.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/log.h"

namespace headrace {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool IsIpLiteral(const std::string& host) {
  unsigned char buffer[16];
  if (host.starts_with('[') && host.ends_with(']'))
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), buffer) == 1;
  return inet_pton(AF_INET, host.c_str(), buffer) == 1;
}

// The name without its port.
std::string HostName(std::string_view host) {
  const size_t close = host.rfind(']');
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && (close == std::string_view::npos || colon > close))
    host = host.substr(0, colon);
  return Lower(host);
}

bool IsLocalName(const std::string& name) {
  return name == "localhost" || name.ends_with(".localhost") || name.ends_with(".local");
}

bool IsLoopbackOrigin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  if (scheme == std::string_view::npos) return false;
  const std::string name = HostName(origin.substr(scheme + 3));
  return name == "localhost" || name.ends_with(".localhost") || name == "[::1]" ||
         (name.starts_with("127.") && IsIpLiteral(name));
}

// An origin has no path; whoever copies one from an address bar has a slash at its end.
bool IsAllowedOrigin(std::string_view origin, std::span<const std::string> allowed) {
  return IsLoopbackOrigin(origin) || std::ranges::any_of(allowed, [&](std::string_view one) {
           if (one.ends_with('/')) one.remove_suffix(1);
           return one == "*" || Lower(one) == Lower(origin);
         });
}

}  // namespace

Status CheckHostHeader(std::string_view host, std::string_view bound_host, std::span<const std::string> allowed) {
  if (host.empty()) return {};
  const std::string name = HostName(host);
  if (IsIpLiteral(name) || IsLocalName(name) || name == Lower(bound_host)) return {};
  if (std::ranges::any_of(allowed, [&](const std::string& one) { return one == "*" || HostName(one) == name; }))
    return {};
  return Fail(ErrorCode::kPermissionDenied,
              fmt::format("This server has no API key, so in the Host header it answers only to an IP address, "
                          "localhost and names that it was told. Start it with --allowed-host {} (* for any name), or "
                          "with --api-key-file.",
                          EscapeForLog(name, 100)),
              "Host");
}

Status CheckAllowedNames(std::span<const std::string> hosts, std::span<const std::string> origins) {
  for (const std::string& host : hosts) {
    if (!HostName(host).empty() && host.find('/') == std::string::npos) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--allowed-host takes a name such as box.lan, or *, but it is '{}'", EscapeForLog(host, 100)),
        "allowed-host");
  }
  for (const std::string& origin : origins) {
    const size_t scheme = origin.find("://");
    const size_t path = scheme == std::string::npos ? scheme : origin.find('/', scheme + 3);
    const bool whole = path == std::string::npos || path + 1 == origin.size();
    if (origin == "*" || (scheme != std::string::npos && scheme > 0 && scheme + 3 < origin.size() && whole)) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--allowed-origin takes scheme, host and port such as https://chat.example, or *, but it is "
                    "'{}'",
                    EscapeForLog(origin, 100)),
        "allowed-origin");
  }
  return {};
}

HttpHeaders CorsHeaders(const HttpRequest& request, std::span<const std::string> allowed) {
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || !IsAllowedOrigin(origin, allowed)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After, Retry-After-Ms"}};
}

HttpHeaders PreflightHeaders(const HttpRequest& request, std::span<const std::string> allowed) {
  if (CorsHeaders(request, allowed).empty()) return {};
  const std::string_view wanted = request.Header("access-control-request-headers");
  // Echoed, so that the SDKs' x-stainless-* headers are admitted; what net accepted holds no control characters.
  return {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          {"Access-Control-Allow-Headers",
           wanted.empty() ? "authorization, content-type, x-request-id" : std::string(wanted)},
          {"Access-Control-Max-Age", "600"}};
}

bool IsJsonContentType(std::string_view content_type) {
  if (content_type.empty()) return true;
  std::string type = Lower(content_type.substr(0, content_type.find(';')));
  while (type.ends_with(' ')) type.pop_back();
  if (type != "application/json" && !type.ends_with("+json")) return false;
  const std::string all = Lower(content_type);
  const size_t charset = all.find("charset=");
  if (charset == std::string::npos) return true;
  std::string_view name = std::string_view(all).substr(charset + 8);
  if (name.starts_with('"')) name.remove_prefix(1);
  return name.starts_with("utf-8") || name.starts_with("utf8") || name.starts_with("us-ascii");
}

bool IsJsonBody(const HttpRequest& request, std::span<const std::string> allowed) {
  const std::string_view type = request.Header("content-type"), origin = request.Header("origin");
  if (type.empty() && !origin.empty() && !IsAllowedOrigin(origin, allowed)) return false;
  return IsJsonContentType(type);
}

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '%' && digit(i + 1) && digit(i + 2)) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace headrace
