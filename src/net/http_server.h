// HTTP/1.1 and 1.0, plain or TLS: connections, limits, timeouts, framing. What a request means, its handler decides.
//
// Threads: everything belongs to the loop thread; Listen may come before EventLoop::Run, and a server may be destroyed
// after it. Other threads reach an exchange through EventLoop::Post or a doorbell.
// Invariants: a handler sees whole, checked requests only. Every exchange ends in exactly one of: response finished,
// client gone, aborted. A limit or timeout closes one connection, never the server.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_loop.h"
#include "net/http_message.h"

namespace headrace {

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;          // 0: the kernel chooses; see HttpServer::port
  std::string tls_cert_file;  // PEM with the whole chain; with tls_key_file turns TLS (>= 1.2) on
  std::string tls_key_file;
  size_t header_bytes_max = 65'536;
  size_t body_bytes_max = size_t{32} << 20;  // after decompression
  // A stream whose reader is slower than its writer: above this the client counts as gone.
  size_t pending_bytes_max = size_t{64} << 20;
  TimeNs header_timeout =
      10 * kNsPerSecond;                    // from the first byte of a request to the end of its headers; TLS handshake
  TimeNs body_timeout = 30 * kNsPerSecond;  // each such span must bring 16 KiB of body, or the rest of it
  TimeNs idle_timeout = 75 * kNsPerSecond;  // between requests, and before the first
  TimeNs write_timeout = 30 * kNsPerSecond;  // each such span of one write must move 16 KiB, or the rest of it
  int connections_max = 1024;                // above it: 503 and close
};

class HttpConnection;

// One request and its answer. Loop thread only. The handler keeps the pointer while it answers; dropping it unanswered
// answers 500, dropping it in the middle of a stream cuts the stream so that the client sees that it is not whole.
// Once it is over every method but request() does nothing, and its callbacks are dropped: they may hold the exchange.
class HttpExchange {
 public:
  HttpExchange(HttpRequest request, HttpConnection* connection);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }

  // The whole answer. REQUIRES: nothing answered yet.
  void Respond(HttpResponse response);

  // An answer in pieces: StartStream, Write any number of times, End. Chunked, or up to the close for HTTP/1.0.
  // REQUIRES: nothing answered yet; Write and End between StartStream and End.
  void StartStream(int status, HttpHeaders headers);
  // Never blocks. While a write is in flight further bytes join one pending buffer and leave as one chunk.
  void Write(std::string bytes);
  void End();
  // Given to Write and not yet taken by the kernel.
  size_t pending_bytes() const;
  // Called whenever pending_bytes returns to 0, so that a relay knows when to read on.
  void OnDrained(std::function<void()> on_drained);

  // Closes without the terminating chunk.
  void Abort();
  // Called at most once, when the client disconnects (half-close included) or stalls past write_timeout before the
  // answer is complete. When that has happened already it is called at once.
  void OnClientGone(std::function<void()> on_gone);
  // The client is still there and the answer is not complete.
  bool open() const { return connection_ != nullptr; }

 private:
  friend class HttpConnection;
  const HttpRequest request_;
  HttpConnection* connection_;  // nullptr once the exchange is over
  bool gone_ = false;
  std::function<void()> on_gone_;
  std::function<void()> on_drained_;
};

// What the server calls, on the loop thread. Must outlive the server.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Headers are complete, the body is unread and empty. An answer here refuses the request before its body costs
  // anything: unknown path, wrong method, no key, too long for this path.
  virtual std::optional<HttpResponse> OnHeaders(const HttpRequest& request) { return std::nullopt; }
  virtual void OnRequest(std::shared_ptr<HttpExchange> exchange) = 0;
  // The body and headers of an error that net itself answers: 400, 408, 413, 415, 417, 431, 500, 501, 503, 505.
  virtual HttpResponse OnProtocolError(int status, std::string_view message);
};

class HttpServer {
 public:
  // Listening at return. Errors name the address or file and a remedy.
  static Result<std::unique_ptr<HttpServer>> Listen(EventLoop& loop, HttpServerOptions options, HttpHandler& handler);
  // Closes everything; exchanges that handlers still hold see their client gone, without a call.
  ~HttpServer();

  uint16_t port() const;
  bool tls() const;
  // No new connections; those there answer what they have and close after it.
  void StopAccepting();
  // Closes connections between two requests.
  void CloseIdle();
  int open_connections() const;

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headrace
