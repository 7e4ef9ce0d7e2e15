// http and https URLs, taken apart and resolved (RFC 3986). Pure functions. Internal to net.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

struct HttpUrl {
  bool https = false;
  std::string host;       // without the brackets of an IPv6 literal
  std::string port;       // "443" when the URL names none
  std::string authority;  // for the Host header
  std::string target;     // path and query, encoded, never empty

  bool SameOrigin(const HttpUrl& other) const {
    return https == other.https && host == other.host && port == other.port;
  }
};

// Error field "url". User names and passwords in a URL are refused: they end up in logs.
Result<HttpUrl> ParseHttpUrl(std::string_view url);
// The absolute form of `reference` as found in a document at `base`.
Result<std::string> ResolveUrl(std::string_view base, std::string_view reference);

}  // namespace headrace
