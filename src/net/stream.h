// One byte stream over TCP, plain or TLS, and the ways to get one: Listener and Dialer. Internal to net.
// Loop thread only. Dropping a handle closes what it holds, and none of its callbacks runs afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/event_loop.h"

namespace headrace {

enum class IoStatus : uint8_t {
  kOk,
  kEof,     // the peer ended its direction in order
  kCut,     // reset, or TLS ended without its closing alert
  kFailed,  // anything else, TLS errors included
};

// Three pieces of one write, so that framing never copies a body.
using WireBytes = std::array<std::string, 3>;

class Stream {
 public:
  // The view is valid until the next Read.
  using ReadDone = std::move_only_function<void(std::string_view bytes, IoStatus status)>;
  using WriteDone = std::move_only_function<void(IoStatus status)>;

  virtual ~Stream() = default;
  // TLS handshake; on a plain stream it succeeds at once. The message says what failed.
  virtual void Handshake(std::move_only_function<void(Status)> done) = 0;
  // At most one Read and one Write at a time.
  virtual void Read(ReadDone done) = 0;
  virtual void Write(WireBytes bytes, WriteDone done) = 0;
  // Bytes the kernel took so far, also in the middle of a Write.
  virtual uint64_t bytes_written() const = 0;
  // No Write follows. Reads still work.
  virtual void ShutdownSend() = 0;
  virtual std::string remote_address() const = 0;
};

// Certificates and keys, loaded once and shared by the streams made with them.
class TlsContext {
 public:
  // TLS 1.2 or newer with this certificate chain and key (PEM).
  static Result<std::unique_ptr<TlsContext>> ForServer(const std::string& cert_file, const std::string& key_file);
  // Verifies the peer and its name against the system's store and, when given, `ca_file` (PEM).
  static Result<std::unique_ptr<TlsContext>> ForClient(const std::string& ca_file);
  ~TlsContext();

  struct Ssl;
  Ssl& ssl() { return *ssl_; }

 private:
  explicit TlsContext(std::unique_ptr<Ssl> ssl);
  std::unique_ptr<Ssl> ssl_;
};

struct ListenOptions {
  std::string host;
  uint16_t port = 0;
  // The kernel gives up on bytes that stay unacknowledged this long, so that a peer that vanished is noticed even when
  // our own buffer is empty.
  TimeNs write_timeout = 0;
  TlsContext* tls = nullptr;  // borrowed; nullptr: plain
};

// Accepts until dropped. Out of descriptors it waits a little instead of spinning.
class Listener {
 public:
  using OnStream = std::function<void(std::unique_ptr<Stream>)>;
  // Bound and listening at return; the error names the address, the cause and a remedy.
  static Result<std::unique_ptr<Listener>> Open(EventLoop& loop, const ListenOptions& options, OnStream on_stream);
  virtual ~Listener() = default;
  virtual uint16_t port() const = 0;
};

// Resolves, connects and, with `tls`, shakes hands. Dropping it gives up.
// Error fields: "connect" or "tls".
class Dialer {
 public:
  using Done = std::move_only_function<void(Result<std::unique_ptr<Stream>>)>;
  static std::unique_ptr<Dialer> Dial(EventLoop& loop, const std::string& host, const std::string& port,
                                      TlsContext* tls, Done done);
  virtual ~Dialer() = default;
};

}  // namespace headrace
