#include "net/http_url.h"

#include <algorithm>
#include <boost/url.hpp>

#include "base/log.h"

namespace headrace {
namespace {

constexpr size_t kUrlBytesMax = 8192;  // signed download URLs run to 2 KB

std::unexpected<Error> BadUrl(std::string_view url, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument, "'" + EscapeForLog(url) + "' is not a usable URL: " + why, "url");
}

}  // namespace

Result<HttpUrl> ParseHttpUrl(std::string_view url) {
  if (url.size() > kUrlBytesMax) return BadUrl(url, "longer than " + std::to_string(kUrlBytesMax) + " bytes");
  try {
    const auto parsed = boost::urls::parse_uri({url.data(), url.size()});
    if (!parsed) return BadUrl(url, parsed.error().message());
    const boost::urls::url_view& u = *parsed;
    HttpUrl out;
    out.https = u.scheme_id() == boost::urls::scheme::https;
    if (!out.https && u.scheme_id() != boost::urls::scheme::http)
      return BadUrl(url, "it must begin with http:// or https://");
    if (u.has_userinfo()) return BadUrl(url, "it must not hold a user name or password");
    out.host = u.host_address();
    std::ranges::transform(out.host, out.host.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c | 0x20) : c; });
    const auto bad_host = [](unsigned char c) { return c <= 0x20 || c == 0x7F; };
    if (out.host.empty() || std::ranges::any_of(out.host, bad_host)) return BadUrl(url, "it has no host");
    out.port = u.has_port() && !u.port().empty() ? std::string(u.port()) : (out.https ? "443" : "80");
    out.authority = std::string(u.encoded_host_and_port());
    out.target = std::string(u.encoded_target());
    if (!out.target.starts_with('/')) out.target.insert(0, "/");
    return out;
  } catch (const std::exception& e) {
    return BadUrl(url, e.what());
  }
}

Result<std::string> ResolveUrl(std::string_view base, std::string_view reference) {
  if (reference.size() > kUrlBytesMax)
    return BadUrl(reference, "longer than " + std::to_string(kUrlBytesMax) + " bytes");
  try {
    const auto from = boost::urls::parse_uri({base.data(), base.size()});
    const auto to = boost::urls::parse_uri_reference({reference.data(), reference.size()});
    if (!from || !to) return BadUrl(reference, "malformed");
    boost::urls::url out;
    if (const auto resolved = boost::urls::resolve(*from, *to, out); !resolved)
      return BadUrl(reference, resolved.error().message());
    out.remove_fragment();
    return std::string(out.buffer());
  } catch (const std::exception& e) {
    return BadUrl(reference, e.what());
  }
}

}  // namespace headrace
