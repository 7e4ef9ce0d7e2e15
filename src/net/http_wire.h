// Response heads and chunk framing as bytes. Pure functions. Internal to net.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace headrace {

struct HeadFraming {
  bool http10 = false;
  bool close = false;
  bool chunked = false;
  std::optional<uint64_t> content_length;
};

// Status line and headers with the empty line. Headers that frame the message are net's: a caller's are left out, and
// so is any that holds a control byte, because such a byte could end the head early (response splitting).
std::string ResponseHead(int status, const HttpHeaders& headers, const HeadFraming& framing, int64_t unix_seconds);
// 1xx, 204 and 304 have no body and no length.
bool StatusHasBody(int status);
std::string_view ReasonPhrase(int status);
// "1a\r\n"; the payload and "\r\n" follow.
std::string ChunkPrefix(size_t payload_bytes);
constexpr std::string_view kLastChunk = "0\r\n\r\n";
// RFC 9110, 5.6.7: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(int64_t unix_seconds);

}  // namespace headrace
