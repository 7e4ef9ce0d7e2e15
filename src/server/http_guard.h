// Pure rules about HTTP headers: which pages may call us (CORS), which Host a keyless server answers to (DNS
// rebinding), which content type a body may have.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace headrace {

// T16: with no key configured, a page of another site could reach a loopback server through a name that it controls.
// Accepted: an IP literal, localhost, *.localhost, *.local, and the bound host; also an absent Host (HTTP/1.0).
Status CheckHostHeader(std::string_view host, std::string_view bound_host);
// T15: Access-Control-Allow-Origin for a page from a loopback origin; none for others.
HttpHeaders CorsHeaders(const HttpRequest& request);
HttpHeaders PreflightHeaders(const HttpRequest& request);
// application/json or any +json, in UTF-8. None at all is taken for it too, except with an Origin that is not loopback:
// a page of another site can send a body without a type and without a preflight.
bool IsJsonContentType(std::string_view content_type);
bool IsJsonBody(const HttpRequest& request);
std::string PercentDecode(std::string_view text);

}  // namespace headrace
