// Pure rules about HTTP headers: which pages may call us (CORS), which Host a keyless server answers to (DNS
// rebinding), which content type a body may have.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace headrace {

// T16: with no key configured, a page of another site could reach a loopback server through a name that it controls.
// Accepted: an IP literal, localhost, *.localhost, *.local, the bound host and the allowed names ("*": any); also an
// absent Host (HTTP/1.0). Ports do not count.
Status CheckHostHeader(std::string_view host, std::string_view bound_host, std::span<const std::string> allowed = {});
// What could never match is refused at the start: a host with a scheme or path, an origin without a scheme or with a
// path.
Status CheckAllowedNames(std::span<const std::string> hosts, std::span<const std::string> origins);
// T15: Access-Control-Allow-Origin for a page from a loopback origin or an allowed one ("*": any); none for others.
HttpHeaders CorsHeaders(const HttpRequest& request, std::span<const std::string> allowed = {});
HttpHeaders PreflightHeaders(const HttpRequest& request, std::span<const std::string> allowed = {});
// application/json or any +json, in UTF-8. None at all is taken for it too, except with an Origin that is neither
// loopback nor allowed: a page of another site can send a body without a type and without a preflight.
bool IsJsonContentType(std::string_view content_type);
bool IsJsonBody(const HttpRequest& request, std::span<const std::string> allowed = {});
std::string PercentDecode(std::string_view text);

}  // namespace headrace
