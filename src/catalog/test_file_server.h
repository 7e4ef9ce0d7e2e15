// For the tests of this room: an HTTP server on 127.0.0.1 that has files, ranges, tags, and cuts connections on demand.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace headrace {

class TestFileServer {
 public:
  TestFileServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&at), size) != 0) std::abort();
    listen(listener_, 8);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~TestFileServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string Url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

  void Put(const std::string& path, std::string bytes, std::string tag = "\"v1\"") {
    MutexLock lock(mutex_);
    files_[path] = {std::move(bytes), std::move(tag)};
  }
  // The next answers break off after so many bytes of their body, one entry for each answer.
  void CutAfter(std::vector<size_t> bytes) {
    MutexLock lock(mutex_);
    cuts_.assign(bytes.begin(), bytes.end());
  }
  void IgnoreRanges() { ranges_ = false; }
  void AnswerWith(int status) { status_ = status; }
  // The Range headers that came, "" for requests without one.
  std::vector<std::string> Ranges() {
    MutexLock lock(mutex_);
    return seen_;
  }

 private:
  struct File {
    std::string bytes;
    std::string tag;
  };

  void Run() {
    for (int fd; (fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      Serve(fd);
      close(fd);
    }
  }

  static std::string HeaderOf(const std::string& head, const std::string& name) {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return head.substr(begin, head.find("\r\n", begin) - begin);
  }

  void Serve(int fd) {
    std::string head;
    char piece[4096];
    while (!head.contains("\r\n\r\n")) {
      const ssize_t got = recv(fd, piece, sizeof piece, 0);
      if (got <= 0) return;
      head.append(piece, static_cast<size_t>(got));
    }
    const size_t space = head.find(' ');
    const auto [answer, body] = Answer(head.substr(space + 1, head.find(' ', space + 1) - space - 1),
                                       HeaderOf(head, "Range"), HeaderOf(head, "If-Range"));
    Send(fd, answer + "Connection: close\r\n\r\n" + body);
    shutdown(fd, SHUT_WR);
    while (recv(fd, piece, sizeof piece, 0) > 0) {
    }
  }

  std::pair<std::string, std::string> Answer(const std::string& path, const std::string& range,
                                             const std::string& if_range) {
    MutexLock lock(mutex_);
    seen_.push_back(range);
    const auto at = files_.find(path);
    if (status_ != 200) return {"HTTP/1.1 " + std::to_string(status_) + " X\r\nContent-Length: 0\r\n", ""};
    if (at == files_.end()) return {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n", ""};
    const File& file = at->second;
    const std::string total = std::to_string(file.bytes.size());
    const bool partial = ranges_ && range.starts_with("bytes=") && (if_range.empty() || if_range == file.tag);
    const size_t from = partial ? std::stoul(range.substr(6)) : 0;
    if (partial && from >= file.bytes.size())
      return {"HTTP/1.1 416 No\r\nContent-Range: bytes */" + total + "\r\nContent-Length: 0\r\n", ""};
    std::string body = file.bytes.substr(from);
    std::string head = partial ? "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes " + std::to_string(from) + "-" +
                                     std::to_string(file.bytes.size() - 1) + "/" + total + "\r\n"
                               : "HTTP/1.1 200 OK\r\n";
    head += "ETag: " + file.tag + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
    if (!cuts_.empty()) {
      body.resize(std::min(body.size(), cuts_.front()));
      cuts_.pop_front();
    }
    return {head, body};
  }

  static void Send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(put));
    }
  }

  const int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> ranges_{true};
  std::atomic<int> status_{200};
  Mutex mutex_;
  std::map<std::string, File> files_ GUARDED_BY(mutex_);
  std::deque<size_t> cuts_ GUARDED_BY(mutex_);
  std::vector<std::string> seen_ GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace headrace
