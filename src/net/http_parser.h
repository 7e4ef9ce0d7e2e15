// HTTP/1.x bytes into a head and body pieces (RFC 9112), over Beast's parser, which is fuzzed and audited. Internal to
// net. One message per parser; knows framing only, no limits of bodies and no meaning of headers. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_message.h"

namespace headrace {

struct HttpHead {
  std::string method;  // request
  std::string target;  // request
  int status = 0;      // response
  int version = 11;    // 10 or 11
  HttpHeaders headers;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = false;
};

class HttpParser {
 public:
  enum class Kind : uint8_t { kRequest, kResponse };
  enum class Progress : uint8_t { kNeedMore, kHead, kDone };
  // A wrong message, by the status that a server answers it with: 400, 431 or 505.
  struct Fault {
    int status = 0;
    std::string message;
  };

  // header_bytes_max bounds start line and headers together, and again the trailers.
  HttpParser(Kind kind, size_t header_bytes_max);
  ~HttpParser();

  // Takes a prefix of `bytes` (the next call repeats the rest) and appends body bytes to `body`. Stops after the head,
  // once, and at the end of the message. REQUIRES: not done.
  std::expected<Progress, Fault> Feed(std::string_view bytes, size_t& consumed, std::string& body);
  // The peer closed. True: that is the regular end of a response without a length.
  bool FeedEof();
  // The response has no body whatever its headers say (it answers HEAD). REQUIRES: nothing was fed.
  void ExpectNoBody();

  bool done() const;
  HttpHead& head();

 private:
  std::unexpected<Fault> TooLarge() const;
  class Core;
  template <bool kIsRequest>
  class BeastCore;
  std::unique_ptr<Core> core_;
};

}  // namespace headrace
