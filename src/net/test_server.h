// For the tests of this room: a server on its own loop thread with a scripted handler, and a client that speaks raw
// bytes. Every blocking call gives up after kPatience, so that a broken server fails a test and does not hang it.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "net/http_server.h"

namespace headrace {

constexpr int kPatienceSeconds = 20;

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop.Run(); }) {}
  ~LoopThread() {
    loop.Stop();
    thread_.join();
  }
  // Runs `task` on the loop and waits for it.
  template <typename F>
  auto On(F task) {
    std::packaged_task<decltype(task())()> job(std::move(task));
    auto result = job.get_future();
    loop.Post([job = std::move(job)]() mutable { job(); });
    return result.get();
  }
  EventLoop loop;

 private:
  std::thread thread_;
};

using ExchangePtr = std::shared_ptr<HttpExchange>;

class ScriptedHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> OnHeaders(const HttpRequest& r) override {
    return on_headers ? on_headers(r) : std::nullopt;
  }
  void OnRequest(ExchangePtr exchange) override { on_request(std::move(exchange)); }
  std::function<std::optional<HttpResponse>(const HttpRequest&)> on_headers;
  // Echoes by default: "METHOD target body".
  std::function<void(ExchangePtr)> on_request = [](const ExchangePtr& e) {
    const HttpRequest& r = e->request();
    e->Respond({200, {{"X-Test", "1"}}, r.method + " " + r.target + " " + r.body});
  };
};

class TestServer {
 public:
  explicit TestServer(HttpServerOptions options = {}) {
    auto made = thread.On([&] { return HttpServer::Listen(thread.loop, options, handler); });
    EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().message);
    server = std::move(*made);
  }
  ~TestServer() {
    thread.On([&] { server.reset(); });
  }
  // A handler that gives its exchange to the test. Call before the first request.
  std::future<ExchangePtr> NextExchange() {
    auto promise = std::make_shared<std::promise<ExchangePtr>>();
    handler.on_request = [promise](ExchangePtr e) { promise->set_value(std::move(e)); };
    return promise->get_future();
  }
  // Asks the loop again and again until `done`.
  template <typename F>
  bool Await(F done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatienceSeconds);
    while (!thread.On(done))
      if (std::chrono::steady_clock::now() > end) return false;
    return true;
  }
  bool AwaitConnections(int count) {
    return Await([&, count] { return server->open_connections() == count; });
  }
  std::string Url(const std::string& target) const {
    return (server->tls() ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(server->port()) + target;
  }

  ScriptedHandler handler;
  LoopThread thread;
  std::unique_ptr<HttpServer> server;
};

class RawClient {
 public:
  struct Answer {
    int status = 0;
    std::string head;
    std::string body;
  };

  explicit RawClient(const TestServer& server, int receive_buffer = 0)
      : RawClient(server.server->port(), receive_buffer) {}
  explicit RawClient(uint16_t port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval patience{kPatienceSeconds, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~RawClient() { Close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  // False: the server has closed.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  bool Readable(int wait_ms) const {
    pollfd p{fd_, POLLIN, 0};
    return poll(&p, 1, wait_ms) > 0;
  }
  // Appends what came; false at the end, on error, and when patience ran out.
  bool ReadSome() {
    char block[65536];
    const ssize_t n = recv(fd_, block, sizeof(block), 0);
    if (n > 0) in_.append(block, static_cast<size_t>(n));
    return n > 0;
  }
  std::string ReadUntil(std::string_view mark) {
    size_t at;
    while ((at = in_.find(mark)) == std::string::npos)
      if (!ReadSome()) return {};
    return Take(at + mark.size());
  }
  std::string ReadToEnd() {
    while (ReadSome()) {
    }
    return Take(in_.size());
  }
  // The server ended the connection, and nothing more came before that.
  bool AtEnd() { return ReadToEnd().empty() && !timed_out(); }
  bool timed_out() const { return Readable(0) == false; }

  Answer ReadAnswer(bool has_body = true) {
    Answer out;
    out.head = ReadUntil("\r\n\r\n");
    if (out.head.size() < 12) return out;
    out.status = std::stoi(out.head.substr(9, 3));
    if (!has_body) return out;
    if (out.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      while (const size_t size = std::stoul("0" + ReadUntil("\r\n"), nullptr, 16)) {
        out.body += ReadExactly(size);
        ReadExactly(2);
      }
      ReadExactly(2);
    } else if (const size_t at = out.head.find("Content-Length: "); at != std::string::npos) {
      out.body = ReadExactly(std::stoul(out.head.substr(at + 16)));
    } else {
      out.body = ReadToEnd();
    }
    return out;
  }
  Answer Ask(std::string_view bytes) {
    Send(bytes);
    return ReadAnswer();
  }
  std::string ReadExactly(size_t size) {
    while (in_.size() < size && ReadSome()) {
    }
    return Take(std::min(size, in_.size()));
  }

  void HalfClose() { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Close();
  }

 private:
  std::string Take(size_t size) {
    std::string out = in_.substr(0, size);
    in_.erase(0, size);
    return out;
  }
  int fd_;
  bool connected_ = false;
  std::string in_;
};

inline std::string Get(std::string_view target, std::string_view more = "") {
  return "GET " + std::string(target) + " HTTP/1.1\r\nHost: t\r\n" + std::string(more) + "\r\n";
}
inline std::string Post(std::string_view target, std::string_view body, std::string_view more = "") {
  return "POST " + std::string(target) + " HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + std::string(more) + "\r\n" + std::string(body);
}
inline size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

}  // namespace headrace
