#include "net/stream.h"

#include <netinet/tcp.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <type_traits>
#include <utility>

#include "base/log.h"
#include "net/event_loop_asio.h"

namespace headrace {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorValue = boost::system::error_code;
using TlsSocket = asio::ssl::stream<tcp::socket>;

// One TLS record is 16 KiB; a plain read of that size costs a few microseconds.
constexpr size_t kReadBytes = 16 * 1024;
// Bytes the kernel may hold that are not yet sent. Small, so that a reader that stopped is noticed by the write timeout
// and not first after megabytes of socket buffer; it does not limit what is in flight.
constexpr int kNotSentBytesMax = 64 * 1024;
constexpr TimeNs kAcceptPause = 50 * kNsPerMs;

IoStatus Classify(const ErrorValue& ec) {
  if (!ec) return IoStatus::kOk;
  if (ec == asio::error::eof) return IoStatus::kEof;
  if (ec == asio::error::connection_reset || ec == asio::error::broken_pipe || ec == asio::ssl::error::stream_truncated)
    return IoStatus::kCut;
  return IoStatus::kFailed;
}

tcp::socket& Lowest(tcp::socket& socket) { return socket; }
tcp::socket& Lowest(TlsSocket& socket) { return socket.next_layer(); }

std::string AddressText(const tcp::socket& socket) {
  ErrorValue ec;
  const auto endpoint = socket.remote_endpoint(ec);
  if (ec) return {};
  const std::string host = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + host + "]" : host) + ":" + std::to_string(endpoint.port());
}

void SetIntOption(tcp::socket& socket, int level, int name, int value) {
  // Advice to the kernel: without it everything still works, only slower.
  [[maybe_unused]] const int rc = setsockopt(socket.native_handle(), level, name, &value, sizeof(value));
}

template <typename Socket>
class AsioStream final : public Stream {
 public:
  template <typename... Args>
  explicit AsioStream(Args&&... args) : state_(std::make_shared<State>(std::forward<Args>(args)...)) {
    state_->address = AddressText(Lowest(state_->socket));
  }
  ~AsioStream() override {
    state_->closed = true;
    state_->read_done = nullptr;
    state_->write_done = nullptr;
    state_->handshake_done = nullptr;
    ErrorValue ec;
    Lowest(state_->socket).close(ec);
  }

  void Handshake(std::move_only_function<void(Status)> done) override {
    state_->handshake_done = std::move(done);
    auto finish = [s = state_](const ErrorValue& ec) {
      if (s->closed) return;
      auto call = std::move(s->handshake_done);
      call(ec ? Status(Fail(ErrorCode::kUnavailable, HandshakeMessage(*s, ec), "tls")) : Status());
    };
    if constexpr (std::is_same_v<Socket, TlsSocket>)
      state_->socket.async_handshake(state_->role, std::move(finish));
    else
      asio::post(state_->socket.get_executor(), [finish = std::move(finish)] { finish({}); });
  }

  void Read(ReadDone done) override {
    state_->read_done = std::move(done);
    state_->socket.async_read_some(asio::buffer(state_->in), [s = state_](const ErrorValue& ec, size_t bytes) {
      if (s->closed) return;
      auto call = std::move(s->read_done);  // it may drop the stream, and the closure with it
      call(std::string_view(s->in.data(), bytes), Classify(ec));
    });
  }

  void Write(WireBytes bytes, WriteDone done) override {
    State& s = *state_;
    s.out = std::move(bytes);
    s.write_done = std::move(done);
    s.written_before = s.written;
    const std::array<asio::const_buffer, 3> buffers{asio::buffer(s.out[0]), asio::buffer(s.out[1]),
                                                    asio::buffer(s.out[2])};
    // The completion condition is also the progress report.
    const auto note = [raw = state_.get()](const ErrorValue& ec, size_t so_far) -> size_t {
      raw->written = raw->written_before + so_far;
      return ec ? 0 : 64 * 1024;
    };
    asio::async_write(s.socket, buffers, note, [s = state_](const ErrorValue& ec, size_t) {
      if (s->closed) return;
      auto call = std::move(s->write_done);
      call(Classify(ec));
    });
  }

  uint64_t bytes_written() const override { return state_->written; }

  void ShutdownSend() override {
    ErrorValue ec;
    if constexpr (std::is_same_v<Socket, TlsSocket>)
      state_->socket.async_shutdown(
          [s = state_](const ErrorValue&) {});  // the closing alert; the reader sees the peer's
    else
      state_->socket.shutdown(tcp::socket::shutdown_send, ec);
  }

  std::string remote_address() const override { return state_->address; }

  // TLS only: which side of the handshake this is, and the name that the peer must prove.
  Status BeClient(const std::string& host) {
    if constexpr (std::is_same_v<Socket, TlsSocket>) {
      state_->role = asio::ssl::stream_base::client;
      ErrorValue ec;
      state_->socket.set_verify_callback(asio::ssl::host_name_verification(host), ec);
      if (ec) return Fail(ErrorCode::kUnavailable, "TLS: " + ec.message(), "tls");
      ErrorValue not_literal;
      asio::ip::make_address(host, not_literal);
      // RFC 6066: no server name for IP literals.
      if (not_literal && SSL_set_tlsext_host_name(state_->socket.native_handle(), host.c_str()) != 1)
        return Fail(ErrorCode::kInvalidArgument, "TLS: '" + host + "' cannot be sent as a server name", "tls");
    }
    return {};
  }

 private:
  // Outlives the handle until its last operation has completed, because the kernel and OpenSSL hold pointers into it.
  struct State {
    template <typename... Args>
    explicit State(Args&&... args) : socket(std::forward<Args>(args)...) {}
    Socket socket;
    bool closed = false;
    asio::ssl::stream_base::handshake_type role = asio::ssl::stream_base::server;
    std::string address;
    std::array<char, kReadBytes> in;
    WireBytes out;
    uint64_t written = 0;
    uint64_t written_before = 0;
    ReadDone read_done;
    WriteDone write_done;
    std::move_only_function<void(Status)> handshake_done;
  };

  static std::string HandshakeMessage(State& s, const ErrorValue& ec) {
    std::string text = ec.message();
    if constexpr (std::is_same_v<Socket, TlsSocket>) {
      const long verify = SSL_get_verify_result(s.socket.native_handle());
      if (verify != X509_V_OK) text += std::string(": ") + X509_verify_cert_error_string(verify);
    }
    return text;
  }

  const std::shared_ptr<State> state_;
};

}  // namespace

struct TlsContext::Ssl {
  explicit Ssl(asio::ssl::context::method method) : context(method) {}
  asio::ssl::context context;
};

TlsContext::TlsContext(std::unique_ptr<Ssl> ssl) : ssl_(std::move(ssl)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::ForServer(const std::string& cert_file, const std::string& key_file) {
  const auto bad = [](const std::string& flag, const std::string& file, const ErrorValue& ec) {
    const std::string name = file.substr(file.find_last_of('/') + 1);
    const bool missing = ec == boost::system::errc::no_such_file_or_directory;
    return Fail(missing ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                "cannot use '" + name + "' as TLS " + (flag == "tls_cert_file" ? "certificate" : "key") + ": " +
                    ec.message() + "; give a readable PEM file" +
                    (flag == "tls_key_file" ? " that belongs to the certificate" : " with the whole chain"),
                flag);
  };
  auto ssl = std::make_unique<Ssl>(asio::ssl::context::tls_server);
  ErrorValue ec;
  (void)ssl->context.set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                                     asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                                     asio::ssl::context::no_tlsv1_1,
                                 ec);
  if (ec) return bad("tls_cert_file", cert_file, ec);
  (void)ssl->context.use_certificate_chain_file(cert_file, ec);
  if (ec) return bad("tls_cert_file", cert_file, ec);
  (void)ssl->context.use_private_key_file(key_file, asio::ssl::context::pem, ec);
  if (ec) return bad("tls_key_file", key_file, ec);
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(ssl)));
}

Result<std::unique_ptr<TlsContext>> TlsContext::ForClient(const std::string& ca_file) {
  auto ssl = std::make_unique<Ssl>(asio::ssl::context::tls_client);
  ErrorValue ec;
  (void)ssl->context.set_options(asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1, ec);
  if (!ec) (void)ssl->context.set_default_verify_paths(ec);
  if (!ec && !ca_file.empty()) (void)ssl->context.load_verify_file(ca_file, ec);
  if (!ec) (void)ssl->context.set_verify_mode(asio::ssl::verify_peer, ec);
  if (ec) return Fail(ErrorCode::kInvalidArgument, "cannot load trusted certificates: " + ec.message(), "tls");
  return std::unique_ptr<TlsContext>(new TlsContext(std::move(ssl)));
}

namespace {

class AsioListener final : public Listener {
 public:
  AsioListener(EventLoop& loop, const ListenOptions& options, OnStream on_stream)
      : state_(std::make_shared<State>(loop, options, std::move(on_stream))) {}
  ~AsioListener() override {
    state_->closed = true;
    state_->loop.Cancel(state_->pause);
    ErrorValue ec;
    (void)state_->acceptor.close(ec);
  }
  uint16_t port() const override {
    ErrorValue ec;
    return state_->acceptor.local_endpoint(ec).port();
  }

  // Empty when listening; else the call's error.
  ErrorValue Bind() {
    State& s = *state_;
    ErrorValue ec;
    auto address = asio::ip::make_address(s.options.host, ec);
    if (ec) {
      tcp::resolver resolver(s.loop.asio().io);
      const auto found = resolver.resolve(s.options.host, std::to_string(s.options.port), tcp::resolver::passive, ec);
      if (ec) return ec;
      address = found.begin()->endpoint().address();
    }
    const tcp::endpoint endpoint(address, s.options.port);
    if (!ec) (void)s.acceptor.open(endpoint.protocol(), ec);
    // Without it a restart fails for a minute while old connections time out.
    if (!ec) (void)s.acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) (void)s.acceptor.bind(endpoint, ec);
    if (!ec) (void)s.acceptor.listen(asio::socket_base::max_listen_connections, ec);
    if (!ec) Accept(state_);
    return ec;
  }

 private:
  struct State {
    State(EventLoop& l, const ListenOptions& o, OnStream f)
        : loop(l), options(o), on_stream(std::move(f)), acceptor(l.asio().io) {}
    EventLoop& loop;
    const ListenOptions options;
    const OnStream on_stream;
    tcp::acceptor acceptor;
    EventLoop::TimerId pause;
    bool closed = false;
  };

  static void Accept(const std::shared_ptr<State>& s) {
    s->acceptor.async_accept([s](const ErrorValue& ec, tcp::socket socket) {
      if (s->closed) return;
      if (!ec) {
        Accept(s);  // first: on_stream may drop the listener
        return Hand(*s, std::move(socket));
      }
      if (ec == asio::error::connection_aborted) return Accept(s);
      LOG_WARN("cannot accept a connection: {}; trying again", ec.message());
      s->pause = s->loop.After(kAcceptPause, [s] { Accept(s); });
    });
  }

  static void Hand(State& s, tcp::socket socket) {
    ErrorValue ec;
    (void)socket.set_option(tcp::no_delay(true), ec);
    (void)socket.set_option(asio::socket_base::keep_alive(true), ec);
    SetIntOption(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kNotSentBytesMax);
    if (s.options.write_timeout > 0)
      SetIntOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(s.options.write_timeout / kNsPerMs) + 1);
    if (s.options.tls != nullptr)
      s.on_stream(std::make_unique<AsioStream<TlsSocket>>(std::move(socket), s.options.tls->ssl().context));
    else
      s.on_stream(std::make_unique<AsioStream<tcp::socket>>(std::move(socket)));
  }

  const std::shared_ptr<State> state_;
};

Error ListenError(const ListenOptions& options, const ErrorValue& ec) {
  Error error{ErrorCode::kIo, {}, "listen", 0};
  std::string remedy = "check the address";
  if (ec == asio::error::address_in_use) {
    error.code = ErrorCode::kConflict;
    remedy = "stop the program that holds the port, or choose another port";
  } else if (ec == asio::error::access_denied) {
    error.code = ErrorCode::kPermissionDenied;
    remedy = "choose a port above 1023, or grant CAP_NET_BIND_SERVICE";
  } else if (ec == boost::system::errc::address_not_available || ec.category() == asio::error::get_netdb_category()) {
    error.code = ErrorCode::kInvalidArgument;
    remedy = "choose an address of this machine, such as 127.0.0.1 or 0.0.0.0";
  }
  error.message =
      "cannot listen on " + options.host + ":" + std::to_string(options.port) + ": " + ec.message() + "; " + remedy;
  return error;
}

class AsioDialer final : public Dialer {
 public:
  AsioDialer(EventLoop& loop, const std::string& host, const std::string& port, TlsContext* tls, Done done)
      : state_(std::make_shared<State>(loop, host, port, tls, std::move(done))) {
    Resolve(state_);
  }
  ~AsioDialer() override {
    state_->closed = true;
    state_->done = nullptr;
    state_->stream.reset();
    state_->resolver.cancel();
    ErrorValue ec;
    (void)state_->socket.close(ec);
  }

 private:
  struct State {
    State(EventLoop& loop, const std::string& h, const std::string& p, TlsContext* t, Done d)
        : host(h), port(p), tls(t), done(std::move(d)), resolver(loop.asio().io), socket(loop.asio().io) {}
    const std::string host;
    const std::string port;
    TlsContext* const tls;
    Done done;
    tcp::resolver resolver;
    tcp::socket socket;
    std::unique_ptr<Stream> stream;
    bool closed = false;
  };
  using StatePtr = std::shared_ptr<State>;

  static void Resolve(const StatePtr& s) {
    s->resolver.async_resolve(s->host, s->port, [s](const ErrorValue& ec, const tcp::resolver::results_type& found) {
      if (s->closed) return;
      if (ec)
        return Finish(*s, Fail(ErrorCode::kUnavailable, "cannot find " + s->host + ": " + ec.message(), "connect"));
      asio::async_connect(s->socket, found,
                          [s](const ErrorValue& failed, const tcp::endpoint&) { Connected(s, failed); });
    });
  }

  static void Connected(const StatePtr& s, const ErrorValue& ec) {
    if (s->closed) return;
    if (ec) {
      return Finish(*s, Fail(ErrorCode::kUnavailable,
                             "cannot connect to " + s->host + ":" + s->port + ": " + ec.message(), "connect"));
    }
    ErrorValue ignored;
    (void)s->socket.set_option(tcp::no_delay(true), ignored);
    if (s->tls == nullptr) return Finish(*s, std::make_unique<AsioStream<tcp::socket>>(std::move(s->socket)));
    auto stream = std::make_unique<AsioStream<TlsSocket>>(std::move(s->socket), s->tls->ssl().context);
    const Status named = stream->BeClient(s->host);
    if (!named) return Finish(*s, Fail(named.error()));
    s->stream = std::move(stream);
    s->stream->Handshake([raw = s.get()](Status status) {
      if (status) return Finish(*raw, std::move(raw->stream));
      Finish(*raw,
             Fail(ErrorCode::kUnavailable, "TLS with " + raw->host + " failed: " + status.error().message, "tls"));
    });
  }

  static void Finish(State& s, Result<std::unique_ptr<Stream>> result) {
    Done done = std::move(s.done);
    done(std::move(result));
  }

  const StatePtr state_;
};

}  // namespace

Result<std::unique_ptr<Listener>> Listener::Open(EventLoop& loop, const ListenOptions& options, OnStream on_stream) {
  auto listener = std::make_unique<AsioListener>(loop, options, std::move(on_stream));
  const ErrorValue ec = listener->Bind();
  if (ec) return Fail(ListenError(options, ec));
  return listener;
}

std::unique_ptr<Dialer> Dialer::Dial(EventLoop& loop, const std::string& host, const std::string& port, TlsContext* tls,
                                     Done done) {
  return std::make_unique<AsioDialer>(loop, host, port, tls, std::move(done));
}

}  // namespace headrace
