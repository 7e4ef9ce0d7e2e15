#include "net/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <limits>
#include <utility>

namespace headrace {
namespace {

namespace http = boost::beast::http;
using ErrorValue = boost::beast::error_code;
using Text = boost::beast::string_view;

// 64 KiB of "a:\r\n" would be 16,384 headers and a megabyte of strings.
constexpr size_t kHeadersMax = 1024;
// "0\r\n\r\n". At least so much follows any place inside a chunked body; with less at hand Beast asserts when it comes
// back to a last chunk that it has seen the beginning of.
constexpr size_t kLastChunkBytes = 5;

std::string ToString(Text text) { return std::string(text.data(), text.size()); }

HttpParser::Fault FaultOf(const ErrorValue& ec, size_t header_bytes_max) {
  if (ec == http::error::header_limit || ec == http::error::buffer_overflow)
    return {431, "the headers are larger than the limit of " + std::to_string(header_bytes_max) + " bytes"};
  if (ec == http::error::bad_version)
    return {505, "the first line is malformed, or its version is not HTTP/1.0 or 1.1"};
  if (ec == http::error::bad_transfer_encoding || ec == http::error::bad_content_length ||
      ec == http::error::multiple_content_length)
    return {400, "Content-Length and Transfer-Encoding are malformed, repeated or contradict each other"};
  return {400, "malformed HTTP: " + ec.message()};
}

}  // namespace

class HttpParser::Core {
 public:
  virtual ~Core() = default;
  virtual size_t Put(std::string_view bytes, ErrorValue& ec) = 0;
  virtual bool PutEof() = 0;
  virtual bool head_done() const = 0;
  virtual bool done() const = 0;
  virtual void SkipBody() = 0;

  HttpHead head;
  std::string* body = nullptr;  // during Feed
  bool head_reported = false;
  size_t header_bytes_max = 0;
  size_t head_bytes = 0;  // parsed before head_reported
  bool too_many_headers = false;
};

template <bool kIsRequest>
class HttpParser::BeastCore final : public HttpParser::Core, private http::basic_parser<kIsRequest> {
 public:
  using Base = http::basic_parser<kIsRequest>;

  explicit BeastCore(size_t limit) {
    header_bytes_max = limit;
    // Beast's own limit holds for the start line and the fields together or apart, as the bytes happen to be split.
    // Feed counts instead.
    Base::header_limit(std::numeric_limits<std::uint32_t>::max());
    Base::body_limit(boost::none);
    Base::eager(false);
  }

  size_t Put(std::string_view bytes, ErrorValue& ec) override {
    return Base::put(boost::asio::const_buffer(bytes.data(), bytes.size()), ec);
  }
  bool PutEof() override {
    if (!Base::got_some()) return false;
    ErrorValue ec;
    Base::put_eof(ec);
    return !ec && Base::is_done();
  }
  bool head_done() const override { return Base::is_header_done(); }
  bool done() const override { return Base::is_done(); }
  void SkipBody() override { Base::skip(true); }

 private:
  void on_request_impl(http::verb, Text method, Text target, int version, ErrorValue&) override {
    head.method = ToString(method);
    head.target = ToString(target);
    head.version = version;
  }
  void on_response_impl(int code, Text, int version, ErrorValue&) override {
    head.status = code;
    head.version = version;
  }
  void on_field_impl(http::field, Text name, Text value, ErrorValue& ec) override {
    if (head_done()) return;  // a trailer: nothing of ours reads them
    if (head.headers.size() == kHeadersMax) {
      too_many_headers = true;
      ec = http::error::header_limit;
      return;
    }
    head.headers.emplace_back(ToString(name), ToString(value));
  }
  void on_header_impl(ErrorValue&) override {
    if (const auto length = Base::content_length()) head.content_length = *length;
    head.chunked = Base::chunked();
    head.keep_alive = Base::keep_alive();
  }
  void on_body_init_impl(const boost::optional<std::uint64_t>&, ErrorValue&) override {}
  std::size_t on_body_impl(Text bytes, ErrorValue&) override {
    body->append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, Text, ErrorValue&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text bytes, ErrorValue&) override {
    body->append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_finish_impl(ErrorValue&) override {}
};

HttpParser::HttpParser(Kind kind, size_t header_bytes_max) {
  if (kind == Kind::kRequest)
    core_ = std::make_unique<BeastCore<true>>(header_bytes_max);
  else
    core_ = std::make_unique<BeastCore<false>>(header_bytes_max);
}

HttpParser::~HttpParser() = default;

std::expected<HttpParser::Progress, HttpParser::Fault> HttpParser::Feed(std::string_view bytes, size_t& consumed,
                                                                        std::string& body) {
  consumed = 0;
  core_->body = &body;
  while (consumed < bytes.size() && !core_->done()) {
    if (core_->head.chunked && bytes.size() - consumed < kLastChunkBytes) break;
    ErrorValue ec;
    const size_t taken = core_->Put(bytes.substr(consumed), ec);
    consumed += taken;
    if (!core_->head_reported) core_->head_bytes += taken;
    if (ec == http::error::need_more) break;
    if (core_->too_many_headers)
      return std::unexpected(
          Fault{431, "there are more than the limit of " + std::to_string(kHeadersMax) + " headers"});
    if (ec) return std::unexpected(FaultOf(ec, core_->header_bytes_max));
    if (core_->head_done() && !core_->head_reported) {
      core_->head_reported = true;
      if (core_->head_bytes > core_->header_bytes_max) return TooLarge();
      return Progress::kHead;
    }
  }
  if (core_->done()) return Progress::kDone;
  // What stays unparsed is the head, a chunk's first line or the trailers.
  const size_t unfinished = bytes.size() - consumed + (core_->head_reported ? 0 : core_->head_bytes);
  if (unfinished > core_->header_bytes_max) return TooLarge();
  return Progress::kNeedMore;
}

std::unexpected<HttpParser::Fault> HttpParser::TooLarge() const {
  return std::unexpected(FaultOf(http::error::header_limit, core_->header_bytes_max));
}

bool HttpParser::FeedEof() { return core_->PutEof(); }
void HttpParser::ExpectNoBody() { core_->SkipBody(); }
bool HttpParser::done() const { return core_->done(); }
HttpHead& HttpParser::head() { return core_->head; }

}  // namespace headrace
