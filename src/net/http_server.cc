#include "net/http_server.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/log.h"
#include "net/http_connection.h"
#include "net/stream.h"

namespace headrace {
namespace {

// Connections above the maximum that are being told so; further ones are closed without a word.
constexpr size_t kRefusedMax = 64;

}  // namespace

HttpResponse HttpHandler::OnProtocolError(int status, std::string_view message) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::string(message) + "\n"};
}

class HttpServer::Impl final : public ConnectionHost {
 public:
  Impl(EventLoop& loop, HttpServerOptions options, HttpHandler& handler)
      : loop_(loop), options_(std::move(options)), handler_(handler) {}
  ~Impl() override { loop_.Cancel(bury_); }

  Status Open() {
    if (options_.tls_cert_file.empty() != options_.tls_key_file.empty())
      return Fail(ErrorCode::kInvalidArgument, "TLS needs both a certificate file and a key file; one is missing",
                  options_.tls_cert_file.empty() ? "tls_cert_file" : "tls_key_file");
    if (!options_.tls_cert_file.empty()) {
      HR_ASSIGN_OR_RETURN(tls_, TlsContext::ForServer(options_.tls_cert_file, options_.tls_key_file));
    }
    const ListenOptions listen{options_.host, options_.port, options_.write_timeout, tls_.get()};
    HR_ASSIGN_OR_RETURN(listener_,
                        Listener::Open(loop_, listen, [this](std::unique_ptr<Stream> s) { Take(std::move(s)); }));
    port_ = listener_->port();
    return {};
  }

  uint16_t port() const { return port_; }
  bool tls() const { return tls_ != nullptr; }
  size_t open_connections() const { return connections_.size() - refused_.size(); }

  void StopAccepting() {
    draining_ = true;
    listener_.reset();
  }

  void CloseIdle() {
    std::vector<HttpConnection*> idle;  // Close edits the table
    for (const auto& [id, connection] : connections_)
      if (connection->idle()) idle.push_back(connection.get());
    for (HttpConnection* connection : idle) connection->Close();
  }

  const HttpServerOptions& options() const override { return options_; }
  HttpHandler& handler() override { return handler_; }
  bool draining() const override { return draining_; }

  void Retire(HttpConnection& connection) override {
    refused_.erase(connection.id());
    const auto found = connections_.find(connection.id());
    retired_.push_back(std::move(found->second));
    connections_.erase(found);
    if (retired_.size() == 1) bury_ = loop_.After(0, [this] { retired_.clear(); });
  }

 private:
  void Take(std::unique_ptr<Stream> stream) {
    const bool full = open_connections() >= static_cast<size_t>(options_.connections_max);
    // A refusal over TLS would first cost the handshake that the limit is there to save.
    if (full && (tls() || refused_.size() >= kRefusedMax)) return;
    const uint64_t id = ++connections_made_;
    auto& connection = connections_[id];
    connection = std::make_unique<HttpConnection>(loop_, *this, std::move(stream), id);
    if (!full) return connection->Start();
    refused_.insert(id);
    connection->StartRefused(503, "the server has reached its limit of " + std::to_string(options_.connections_max) +
                                      " connections; try again later");
  }

  EventLoop& loop_;
  const HttpServerOptions options_;
  HttpHandler& handler_;
  std::unique_ptr<TlsContext> tls_;
  std::unordered_map<uint64_t, std::unique_ptr<HttpConnection>> connections_;
  std::unordered_set<uint64_t> refused_;                  // of connections_
  std::vector<std::unique_ptr<HttpConnection>> retired_;  // closed, until nothing of them is on the stack
  EventLoop::TimerId bury_;
  std::unique_ptr<Listener> listener_;
  uint64_t connections_made_ = 0;
  uint16_t port_ = 0;
  bool draining_ = false;
};

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(EventLoop& loop, HttpServerOptions options,
                                                       HttpHandler& handler) {
  auto impl = std::make_unique<Impl>(loop, std::move(options), handler);
  HR_RETURN_IF_ERROR(impl->Open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }
bool HttpServer::tls() const { return impl_->tls(); }
void HttpServer::StopAccepting() { impl_->StopAccepting(); }
void HttpServer::CloseIdle() { impl_->CloseIdle(); }
int HttpServer::open_connections() const { return static_cast<int>(impl_->open_connections()); }

}  // namespace headrace
