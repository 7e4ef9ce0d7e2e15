// One HTTP/1.1 request to a server, for downloads and small calls: a connection of its own, redirects, timeouts, a body
// that is handed on piece by piece and never held.
//
// Threads: StartFetch and its events on the loop thread; HttpFetch on any thread that may block.
// Errors by Error::field: "url", "connect" (kUnavailable), "tls" (kUnavailable), "timeout" (kDeadlineExceeded), "cut"
// (kIo, "connection cut after N bytes"), "redirect", "response" (not HTTP); an error of the sink comes back as is.
// A status of 400 or more is a result, not an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "net/http_message.h"

namespace headrace {

struct HttpFetchRequest {
  std::string method = "GET";
  std::string url;      // http or https
  HttpHeaders headers;  // "Range", "Authorization"; credentials are not sent on to another origin
  std::string body;
  TimeNs connect_timeout = 10 * kNsPerSecond;  // name, connection and TLS together
  TimeNs idle_timeout = 60 * kNsPerSecond;     // without a byte from the server, or without one taken by it
  int max_redirects = 5;
  size_t header_bytes_max = 65'536;
  std::string ca_file;  // PEM, trusted in addition to the system's store
};

struct HttpResult {
  int status = 0;
  HttpHeaders headers;
  std::string url;              // the one that answered, after redirects
  uint64_t bytes_received = 0;  // of the body
  std::string error_body;       // the body when status is not 2xx, up to 64 KiB

  std::string_view Header(std::string_view name) const { return FindHeader(headers, name); }
};

// Gets the body of a 2xx answer. An error stops the download.
using HttpBodySink = std::function<Status(std::span<const std::byte>)>;
// Sees status and headers before the first byte of the body: whether a Range was honoured (206) is known here.
using HttpHeadSink = std::function<Status(const HttpResult&)>;

struct HttpFetchEvents {
  HttpHeadSink on_head;                                       // may be empty
  HttpBodySink on_body;                                       // may be empty
  std::move_only_function<void(Result<HttpResult>)> on_done;  // once, never inside StartFetch
};

// A request under way. Dropping it closes the connection, and no event follows.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
};

[[nodiscard]] std::unique_ptr<HttpCall> StartFetch(EventLoop& loop, HttpFetchRequest request, HttpFetchEvents events);

// Blocks until the end.
Result<HttpResult> HttpFetch(const HttpFetchRequest& request, HttpBodySink on_body, HttpHeadSink on_head = {});

}  // namespace headrace
