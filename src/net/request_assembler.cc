#include "net/request_assembler.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

bool IsControl(unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; }

size_t CountHeader(const HttpHeaders& headers, std::string_view name) {
  return static_cast<size_t>(
      std::ranges::count_if(headers, [&](const auto& h) { return EqualIgnoringCase(h.first, name); }));
}

}  // namespace

RequestAssembler::RequestAssembler(const RequestLimits& limits)
    : limits_(limits), parser_(HttpParser::Kind::kRequest, limits.header_bytes_max) {}

RequestAssembler::Step RequestAssembler::Feed(std::string_view bytes, size_t& consumed) {
  piece_.clear();
  const auto progress = parser_.Feed(bytes, consumed, piece_);
  if (!progress) return Refuse(progress.error().status, progress.error().message);
  if (*progress == HttpParser::Progress::kHead) return TakeHead();
  if (!piece_.empty() && TakeBody() == Step::kRefused) return Step::kRefused;
  if (*progress == HttpParser::Progress::kNeedMore) return Step::kNeedMore;
  if (gzip_ && !gzip_->complete() && !discard_body_) return Refuse(400, "the gzip body is cut short");
  return Step::kDone;
}

RequestAssembler::Step RequestAssembler::Refuse(int status, std::string message) {
  refusal_ = {status, std::move(message)};
  return Step::kRefused;
}

RequestAssembler::Step RequestAssembler::RefuseTooLarge() {
  return Refuse(413, "the request body is larger than the limit of " + std::to_string(limits_.body_bytes_max) +
                         " bytes" + (gzip_ ? ", counted after decompression" : ""));
}

RequestAssembler::Step RequestAssembler::TakeHead() {
  HttpHead& head = parser_.head();
  request_.method = std::move(head.method);
  request_.target = std::move(head.target);
  request_.headers = std::move(head.headers);
  for (const auto check :
       {&RequestAssembler::CheckHeaders, &RequestAssembler::CheckTarget, &RequestAssembler::CheckCodings})
    if ((this->*check)() == Step::kRefused) return Step::kRefused;
  if (head.content_length.value_or(0) > limits_.body_bytes_max) return RefuseTooLarge();
  return Step::kHead;
}

RequestAssembler::Step RequestAssembler::CheckHeaders() {
  for (const auto& [name, value] : request_.headers)
    if (std::ranges::any_of(value, IsControl)) return Refuse(400, "a header value holds a control byte");
  const size_t hosts = CountHeader(request_.headers, "Host");
  if (hosts > 1 || (hosts == 0 && !http10())) return Refuse(400, "an HTTP/1.1 request needs exactly one Host header");
  const std::string_view expect = request_.Header("Expect");
  if (!expect.empty() && !http10()) {
    if (!EqualIgnoringCase(expect, "100-continue")) return Refuse(417, "the only Expect understood is 100-continue");
    expects_continue_ = true;
  }
  return Step::kHead;
}

RequestAssembler::Step RequestAssembler::CheckTarget() {
  std::string& target = request_.target;
  if (std::ranges::any_of(target, IsControl)) return Refuse(400, "the request target holds a control byte");
  // Absolute form, as sent to proxies: the path is what counts (RFC 9112, 3.2.2).
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const size_t path = target.find_first_of("/?", target.find("//") + 2);
    target.erase(0, std::min(path, target.size()));
    if (!target.starts_with('/')) target.insert(0, "/");
  }
  if (!target.starts_with('/') && target != "*") return Refuse(400, "the request target must begin with '/'");
  const size_t mark = target.find('?');
  request_.path = target.substr(0, mark);
  if (mark != std::string::npos) request_.query = target.substr(mark + 1);
  return Step::kHead;
}

RequestAssembler::Step RequestAssembler::CheckCodings() {
  const size_t transfer = CountHeader(request_.headers, "Transfer-Encoding");
  if (transfer > 0) {
    // The parser has refused Content-Length beside it.
    if (http10() || transfer > 1) return Refuse(400, "Transfer-Encoding is not allowed here");
    if (!EqualIgnoringCase(request_.Header("Transfer-Encoding"), "chunked"))
      return Refuse(501, "the only Transfer-Encoding understood is chunked");
  }
  const size_t content = CountHeader(request_.headers, "Content-Encoding");
  const std::string_view coding = request_.Header("Content-Encoding");
  if (content > 1) return Refuse(415, "the body is encoded more than once");
  if (EqualIgnoringCase(coding, "gzip") || EqualIgnoringCase(coding, "x-gzip"))
    gzip_.emplace();
  else if (!coding.empty() && !EqualIgnoringCase(coding, "identity"))
    return Refuse(415, "the only Content-Encoding understood is gzip");
  return Step::kHead;
}

RequestAssembler::Step RequestAssembler::TakeBody() {
  if (discard_body_) return Step::kNeedMore;
  if (gzip_) {
    switch (gzip_->Append(piece_, limits_.body_bytes_max, request_.body)) {
      case GzipReader::Outcome::kTooLarge:
        return RefuseTooLarge();
      case GzipReader::Outcome::kCorrupt:
        return Refuse(400, "the body is not valid gzip");
      case GzipReader::Outcome::kOk:
        return Step::kNeedMore;
    }
  }
  if (request_.body.size() + piece_.size() > limits_.body_bytes_max) return RefuseTooLarge();
  request_.body += piece_;
  return Step::kNeedMore;
}

}  // namespace headrace
