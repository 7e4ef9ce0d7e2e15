#include "net/http_client.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "net/deadline.h"
#include "net/http_parser.h"
#include "net/http_url.h"
#include "net/stream.h"

namespace headrace {
namespace {

constexpr size_t kErrorBodyBytesMax = 64 * 1024;

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool IsCredential(std::string_view name) {
  return std::ranges::any_of(std::array{"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key"},
                             [&](std::string_view secret) { return EqualIgnoringCase(name, secret); });
}

bool HasLineEnd(std::string_view text) {
  return text.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos;
}

class Call final : public HttpCall {
 public:
  Call(EventLoop& loop, HttpFetchRequest request, HttpFetchEvents events)
      : loop_(loop),
        request_(std::move(request)),
        events_(std::move(events)),
        deadline_(loop, [this] { OnDeadline(); }) {
    result_.url = request_.url;
    Connect();
  }

 private:
  void Connect() {
    const Status started = TryConnect();
    if (started) return;
    failure_ = started.error();
    deadline_.Set(0);  // reported from the loop, never from inside StartFetch
  }

  Status TryConnect() {
    HR_ASSIGN_OR_RETURN(url_, ParseHttpUrl(result_.url));
    for (const auto& [name, value] : request_.headers)
      if (HasLineEnd(name) || HasLineEnd(value))
        return Fail(ErrorCode::kInvalidArgument, "request header '" + name.substr(0, 40) + "' holds a line end",
                    "headers");
    if (url_.https && tls_ == nullptr) {
      HR_ASSIGN_OR_RETURN(tls_, TlsContext::ForClient(request_.ca_file));
    }
    deadline_.Set(request_.connect_timeout);
    dialer_ = Dialer::Dial(loop_, url_.host, url_.port, url_.https ? tls_.get() : nullptr,
                           [this](Result<std::unique_ptr<Stream>> stream) { OnConnected(std::move(stream)); });
    return {};
  }

  void OnConnected(Result<std::unique_ptr<Stream>> stream) {
    if (!stream) return Finish(Fail(stream.error()));
    stream_ = std::move(*stream);
    NewParser();
    inbox_.clear();
    deadline_.Set(request_.idle_timeout);
    stream_->Write({RequestHead(), request_.body, ""}, [this](IoStatus status) {
      // A server may refuse a body and close before it has read it: its answer is worth more than our write error.
      if (status == IoStatus::kOk) deadline_.Set(request_.idle_timeout);
    });
    ReadMore();
  }

  std::string RequestHead() const {
    // No reuse, so no keep-alive; no compression, because ranges and checksums are those of the file itself.
    std::string out = request_.method + " " + url_.target + " HTTP/1.1\r\nHost: " + url_.authority +
                      "\r\nConnection: close\r\nAccept-Encoding: identity\r\n";
    const auto has = [&](std::string_view name) { return !FindHeader(request_.headers, name).empty(); };
    if (!has("User-Agent")) out += "User-Agent: headrace\r\n";
    if (!has("Accept")) out += "Accept: */*\r\n";
    for (const auto& [name, value] : request_.headers) out.append(name).append(": ").append(value).append("\r\n");
    if (!request_.body.empty() || request_.method == "POST" || request_.method == "PUT")
      out += "Content-Length: " + std::to_string(request_.body.size()) + "\r\n";
    return out += "\r\n";
  }

  void NewParser() {
    parser_.emplace(HttpParser::Kind::kResponse, request_.header_bytes_max);
    if (request_.method == "HEAD") parser_->ExpectNoBody();
  }

  void ReadMore() {
    stream_->Read([this](std::string_view bytes, IoStatus status) { OnRead(bytes, status); });
  }

  void OnRead(std::string_view bytes, IoStatus status) {
    if (status != IoStatus::kOk) return OnInputEnd(status);
    deadline_.Set(request_.idle_timeout);
    inbox_ += bytes;
    // False: the call is over, and this object may be gone.
    if (Parse()) ReadMore();
  }

  bool Parse() {
    for (;;) {
      size_t consumed = 0;
      piece_.clear();
      const auto progress = parser_->Feed(inbox_, consumed, piece_);
      inbox_.erase(0, consumed);
      if (!progress)
        return End(Fail(ErrorCode::kIo, "the server's answer is not HTTP: " + progress.error().message, "response"));
      const bool head = *progress == HttpParser::Progress::kHead;
      if (head && parser_->head().status >= 200) {
        if (const auto location = RedirectTarget()) return Redirect(*location);
        if (!TakeHead()) return false;
      }
      if (!piece_.empty() && !TakeBody()) return false;
      if (!parser_->done()) {
        if (head && !inbox_.empty()) continue;
        return true;
      }
      if (parser_->head().status >= 200) return End(std::move(result_));
      NewParser();  // 100 or 103: the answer proper follows
      if (inbox_.empty()) return true;
    }
  }

  std::optional<std::string> RedirectTarget() {
    const HttpHead& head = parser_->head();
    const std::string_view location = FindHeader(head.headers, "Location");
    if (!IsRedirect(head.status) || location.empty() || request_.max_redirects <= 0) return std::nullopt;
    return std::string(location);
  }

  bool Redirect(const std::string& location) {
    if (++redirects_ > request_.max_redirects)
      return End(
          Fail(ErrorCode::kIo, "more than " + std::to_string(request_.max_redirects) + " redirects", "redirect"));
    const auto target = ResolveUrl(result_.url, location);
    const auto next = target ? ParseHttpUrl(*target) : Result<HttpUrl>(Fail(target.error()));
    if (!next) return End(Fail(ErrorCode::kIo, "redirect: " + next.error().message, "redirect"));
    if (url_.https && !next->https)
      return End(Fail(ErrorCode::kIo, "the server redirects from https to http; refused", "redirect"));
    if (!next->SameOrigin(url_)) std::erase_if(request_.headers, [](const auto& h) { return IsCredential(h.first); });
    const int status = parser_->head().status;
    if (status != 307 && status != 308 && request_.method != "HEAD") {
      request_.method = "GET";  // what every client does with 301 and 302 too
      request_.body.clear();
    }
    result_.url = *target;
    stream_.reset();
    Connect();
    return false;
  }

  bool TakeHead() {
    result_.status = parser_->head().status;
    result_.headers = std::move(parser_->head().headers);
    if (!events_.on_head) return true;
    const Status status = events_.on_head(result_);
    return status || End(Fail(status.error()));
  }

  bool TakeBody() {
    result_.bytes_received += piece_.size();
    if (result_.status / 100 != 2) {
      result_.error_body.append(piece_, 0, kErrorBodyBytesMax - result_.error_body.size());
      return result_.error_body.size() < kErrorBodyBytesMax || End(std::move(result_));
    }
    if (!events_.on_body) return true;
    const Status status = events_.on_body(std::as_bytes(std::span(piece_)));
    return status || End(Fail(status.error()));
  }

  void OnInputEnd(IoStatus status) {
    // TLS without its closing alert is a cut even where the body has no length: anybody can send a FIN.
    if (status == IoStatus::kEof && result_.status != 0 && parser_->FeedEof()) return Finish(std::move(result_));
    Finish(Fail(ErrorCode::kIo,
                "connection cut after " + std::to_string(result_.bytes_received) + " bytes" +
                    (result_.status == 0 ? ", before the answer's headers" : ""),
                "cut"));
  }

  void OnDeadline() {
    if (failure_) return Finish(Fail(*failure_));
    const bool connecting = stream_ == nullptr;
    const TimeNs limit = connecting ? request_.connect_timeout : request_.idle_timeout;
    Finish(Fail(
        ErrorCode::kDeadlineExceeded,
        (connecting ? "no connection to " + url_.authority + " within " : "no data from " + url_.authority + " for ") +
            std::to_string(limit / kNsPerMs) + " ms",
        "timeout"));
  }

  bool End(Result<HttpResult> result) {
    Finish(std::move(result));
    return false;
  }

  // The last step: on_done may destroy this.
  void Finish(Result<HttpResult> result) {
    deadline_.Clear();
    stream_.reset();
    auto on_done = std::move(events_.on_done);
    on_done(std::move(result));
  }

  EventLoop& loop_;
  HttpFetchRequest request_;
  HttpFetchEvents events_;
  HttpUrl url_;
  std::unique_ptr<TlsContext> tls_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<Stream> stream_;
  std::optional<HttpParser> parser_;
  std::string inbox_;
  std::string piece_;
  HttpResult result_;
  int redirects_ = 0;
  std::optional<Error> failure_;
  Deadline deadline_;
};

}  // namespace

std::unique_ptr<HttpCall> StartFetch(EventLoop& loop, HttpFetchRequest request, HttpFetchEvents events) {
  return std::make_unique<Call>(loop, std::move(request), std::move(events));
}

Result<HttpResult> HttpFetch(const HttpFetchRequest& request, HttpBodySink on_body, HttpHeadSink on_head) {
  EventLoop loop;
  std::optional<Result<HttpResult>> done;
  const auto call = StartFetch(loop, request, {std::move(on_head), std::move(on_body), [&](Result<HttpResult> result) {
                                                 done = std::move(result);
                                                 loop.Stop();
                                               }});
  loop.Run();
  return std::move(*done);
}

}  // namespace headrace
