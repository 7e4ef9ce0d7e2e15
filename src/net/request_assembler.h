// Bytes of one request into one checked HttpRequest, or into the refusal that answers them. No I/O and no clock, so
// that tests and the fuzzer drive it directly. One thread. Internal to net.
// Invariants: holds at most body_bytes_max of body, decompressed; everything a second parser could read differently
// (length and chunks at once, unknown codings, control bytes, two hosts) is refused, never repaired.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/gzip_reader.h"
#include "net/http_message.h"
#include "net/http_parser.h"

namespace headrace {

struct RequestLimits {
  size_t header_bytes_max = 0;
  size_t body_bytes_max = 0;
};

// Closes the connection after its answer: what follows on it cannot be trusted to be a request.
struct Refusal {
  int status = 0;
  std::string message;
};

class RequestAssembler {
 public:
  enum class Step : uint8_t { kNeedMore, kHead, kDone, kRefused };
  explicit RequestAssembler(const RequestLimits& limits);

  // Takes a prefix of `bytes`; the next call repeats the rest. kHead comes once; a request without a body is then done.
  // REQUIRES: neither done nor refused.
  Step Feed(std::string_view bytes, size_t& consumed);

  bool done() const { return parser_.done(); }
  HttpRequest& request() { return request_; }
  const Refusal& refusal() const { return refusal_; }
  // After kHead:
  bool http10() { return parser_.head().version == 10; }
  bool keep_alive() { return parser_.head().keep_alive; }
  bool expects_continue() const { return expects_continue_; }
  std::optional<uint64_t> content_length() { return parser_.head().content_length; }
  // Body bytes are read and thrown away from here on.
  void DiscardBody() { discard_body_ = true; }

 private:
  Step Refuse(int status, std::string message);
  Step RefuseTooLarge();
  Step TakeHead();
  Step CheckHeaders();
  Step CheckTarget();
  Step CheckCodings();
  Step TakeBody();

  const RequestLimits limits_;
  HttpParser parser_;
  HttpRequest request_;
  Refusal refusal_;
  std::string piece_;  // body bytes of one Feed, still encoded
  std::optional<GzipReader> gzip_;
  bool expects_continue_ = false;
  bool discard_body_ = false;
};

}  // namespace headrace
