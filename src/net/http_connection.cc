#include "net/http_connection.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "net/http_wire.h"

namespace headrace {
namespace {

// Bytes behind a running request that are kept for later; with this many buffered the kernel holds the rest.
constexpr size_t kPipelinedBytesMax = 64 * 1024;
// Per body_timeout or write_timeout. At the default 30 s that is 546 bytes/s: no line is so slow, a trickle is.
constexpr uint64_t kWindowBytesMin = 16 * 1024;
// A refused request with a body no longer than this keeps its connection: reading it is cheaper than a new handshake.
constexpr uint64_t kDiscardBytesMax = 64 * 1024;
// After the last answer we read on for this long: closing with unread bytes would send a reset, which may destroy the
// answer before the client has read it.
constexpr TimeNs kLingerTime = 2 * kNsPerSecond;

}  // namespace

HttpConnection::HttpConnection(EventLoop& loop, ConnectionHost& host, std::unique_ptr<Stream> stream, uint64_t id)
    : id_(id),
      host_(host),
      stream_(std::move(stream)),
      input_deadline_(loop, [this] { OnInputExpired(); }),
      write_deadline_(loop, [this] { OnWriteWindowEnd(); }) {}

HttpConnection::~HttpConnection() { DetachExchange(); }

void HttpConnection::Start() {
  input_deadline_.Set(host_.options().header_timeout);
  stream_->Handshake([this](Status status) {
    if (!status) {
      LOG_DEBUG("TLS handshake with {} failed: {}", stream_->remote_address(), EscapeForLog(status.error().message));
      return Close();
    }
    BecomeIdle();
    ReadMore();
  });
}

void HttpConnection::StartRefused(int status, std::string_view message) {
  Refuse(status, message);
  ReadMore();
}

// ---- reading ----

void HttpConnection::BecomeIdle() {
  state_ = State::kIdle;
  input_deadline_.Set(host_.options().idle_timeout);
}

void HttpConnection::ReadMore() {
  if (state_ == State::kClosed || reading_ || input_ended_) return;
  if (state_ == State::kResponding && inbox_.size() >= kPipelinedBytesMax) return;
  reading_ = true;
  stream_->Read([this](std::string_view bytes, IoStatus status) { OnRead(bytes, status); });
}

void HttpConnection::OnRead(std::string_view bytes, IoStatus status) {
  reading_ = false;
  if (status != IoStatus::kOk) return OnInputEnd(status);
  // Nothing that follows the last answer is a request.
  const bool ignored = state_ == State::kLingering || (close_after_ && answer_ == Answer::kEnded);
  if (!ignored) {
    inbox_ += bytes;
    Advance();
  }
  ReadMore();
}

void HttpConnection::OnInputExpired() {
  switch (state_) {
    case State::kHead:
      return Refuse(408, "the request's headers did not arrive in time");
    case State::kBody:
      return OnBodyWindowEnd();
    default:
      return Close();
  }
}

void HttpConnection::Advance() {
  while ((state_ == State::kIdle || state_ == State::kHead || state_ == State::kBody) && !inbox_.empty())
    if (!AdvanceRequest()) return;
}

// False: needs more bytes.
bool HttpConnection::AdvanceRequest() {
  if (state_ == State::kIdle) {
    // Some clients end a body with an extra line end (RFC 9112, 2.2).
    inbox_.erase(0, std::min(inbox_.find_first_not_of("\r\n"), inbox_.size()));
    if (inbox_.empty()) return false;
    BeginRequest();
  }
  size_t consumed = 0;
  const RequestAssembler::Step step = assembler_->Feed(inbox_, consumed);
  inbox_.erase(0, consumed);
  body_window_bytes_ += consumed;
  switch (step) {
    case RequestAssembler::Step::kNeedMore:
      return false;
    case RequestAssembler::Step::kHead:
      return OnHead();
    case RequestAssembler::Step::kDone:
      Dispatch();
      return true;
    case RequestAssembler::Step::kRefused:
      break;
  }
  Refuse(assembler_->refusal().status, assembler_->refusal().message);
  return true;
}

void HttpConnection::BeginRequest() {
  state_ = State::kHead;
  http10_ = head_request_ = false;
  assembler_.emplace(RequestLimits{host_.options().header_bytes_max, host_.options().body_bytes_max});
  input_deadline_.Set(host_.options().header_timeout);
}

bool HttpConnection::OnHead() {
  HttpRequest& request = assembler_->request();
  request.remote_address = stream_->remote_address();
  http10_ = assembler_->http10();
  head_request_ = request.method == "HEAD";
  close_after_ = !assembler_->keep_alive();
  if (auto early = host_.handler().OnHeaders(request))
    AnswerEarly(std::move(*early));
  else if (assembler_->done())
    Dispatch();
  else
    AwaitBody();
  return true;
}

void HttpConnection::AnswerEarly(HttpResponse response) {
  if (assembler_->done()) return SendResponse(std::move(response));
  const bool short_body = assembler_->content_length().value_or(kDiscardBytesMax + 1) <= kDiscardBytesMax;
  if (short_body && !assembler_->expects_continue()) {
    early_ = std::move(response);
    assembler_->DiscardBody();
    return AwaitBody();
  }
  close_after_ = true;
  SendResponse(std::move(response));
}

void HttpConnection::AwaitBody() {
  state_ = State::kBody;
  body_window_bytes_ = 0;
  input_deadline_.Set(host_.options().body_timeout);
  if (!assembler_->expects_continue() || !inbox_.empty()) return;
  wire_ += "HTTP/1.1 100 Continue\r\n\r\n";
  Flush();
}

void HttpConnection::OnBodyWindowEnd() {
  if (body_window_bytes_ < kWindowBytesMin) return Refuse(408, "the request's body arrives too slowly");
  body_window_bytes_ = 0;
  input_deadline_.Set(host_.options().body_timeout);
}

void HttpConnection::Dispatch() {
  if (early_) {
    SendResponse(*std::exchange(early_, std::nullopt));
    return;
  }
  state_ = State::kResponding;
  input_deadline_.Clear();
  auto exchange = std::make_shared<HttpExchange>(std::move(assembler_->request()), this);
  exchange_ = exchange.get();
  host_.handler().OnRequest(std::move(exchange));
}

void HttpConnection::Refuse(int status, std::string_view message) {
  close_after_ = true;
  early_.reset();
  SendResponse(host_.handler().OnProtocolError(status, message));
}

// ---- writing ----

std::string HttpConnection::Head(int status, const HttpHeaders& headers, std::optional<uint64_t> content_length) {
  if (host_.draining()) close_after_ = true;
  const HeadFraming framing{http10_, close_after_, chunked_, content_length};
  return ResponseHead(status, headers, framing, clock_.UnixSeconds());
}

void HttpConnection::SendResponse(HttpResponse response) {
  CHECK(answer_ == Answer::kNone);  // a handler answers once
  state_ = State::kResponding;
  input_deadline_.Clear();
  if (close_after_) inbox_.clear();
  answer_ = Answer::kEnded;
  chunked_ = false;
  wire_ += Head(response.status, response.headers, response.body.size());
  if (!head_request_ && StatusHasBody(response.status)) payload_ = std::move(response.body);
  Flush();
}

void HttpConnection::StartStream(int status, const HttpHeaders& headers) {
  CHECK(answer_ == Answer::kNone);
  answer_ = Answer::kStreaming;
  bodiless_ = head_request_ || !StatusHasBody(status);
  chunked_ = !http10_ && StatusHasBody(status);
  if (http10_) close_after_ = true;  // the close is what ends the body
  wire_ += Head(status, headers, std::nullopt);
  if (bodiless_) chunked_ = false;  // after the head, which says what GET would have got
  Flush();
}

void HttpConnection::Write(std::string bytes) {
  CHECK(answer_ == Answer::kStreaming);
  if (bytes.empty() || overflowed_ || bodiless_) return;
  if (payload_.empty())
    payload_ = std::move(bytes);
  else
    payload_ += bytes;
  if (payload_.size() > host_.options().pending_bytes_max) {
    overflowed_ = true;
    payload_.clear();
    return write_deadline_.Set(0);  // not here: the handler is in the middle of something
  }
  Flush();
}

void HttpConnection::End() {
  CHECK(answer_ == Answer::kStreaming);
  answer_ = Answer::kEnded;
  last_chunk_due_ = chunked_;
  if (writing_) return;
  // An empty write, so that the next request starts from the loop and not inside the handler's call.
  if (nothing_to_write()) return WriteOut({});
  Flush();
}

void HttpConnection::Flush() {
  if (writing_ || nothing_to_write()) return;
  WireBytes out;
  out[0] = std::exchange(wire_, {});
  out[1] = std::exchange(payload_, {});
  if (chunked_ && !out[1].empty()) {
    out[0] += ChunkPrefix(out[1].size());
    out[2] = "\r\n";
  }
  if (std::exchange(last_chunk_due_, false)) out[2] += kLastChunk;
  WriteOut(std::move(out));
}

void HttpConnection::WriteOut(WireBytes bytes) {
  writing_ = true;
  payload_in_flight_ = bytes[1].size();
  write_window_start_ = stream_->bytes_written();
  write_deadline_.Set(host_.options().write_timeout);
  stream_->Write(std::move(bytes), [this](IoStatus status) { OnWritten(status); });
}

void HttpConnection::OnWritten(IoStatus status) {
  writing_ = false;
  if (status != IoStatus::kOk || overflowed_) return LoseClient();
  write_deadline_.Clear();
  const bool drained = std::exchange(payload_in_flight_, 0) > 0 && payload_.empty();
  if (!nothing_to_write()) return Flush();
  if (answer_ == Answer::kEnded) return FinishAnswer();
  if (drained && exchange_ != nullptr && exchange_->on_drained_) {
    const auto on_drained = exchange_->on_drained_;  // it may drop the exchange
    on_drained();
  }
}

void HttpConnection::OnWriteWindowEnd() {
  if (overflowed_ || stream_->bytes_written() - write_window_start_ < kWindowBytesMin) return LoseClient();
  write_window_start_ = stream_->bytes_written();
  write_deadline_.Set(host_.options().write_timeout);
}

void HttpConnection::FinishAnswer() {
  DetachExchange();
  answer_ = Answer::kNone;
  assembler_.reset();
  if (input_ended_) {
    stream_->ShutdownSend();
    return Close();
  }
  if (close_after_ || host_.draining()) return Linger();
  BecomeIdle();
  Advance();
  ReadMore();
}

void HttpConnection::Linger() {
  state_ = State::kLingering;
  inbox_.clear();
  input_deadline_.Set(kLingerTime);
  stream_->ShutdownSend();
  ReadMore();
}

// ---- ending ----

void HttpConnection::OnInputEnd(IoStatus status) {
  // A half-close behind a request whose answer is already on its way: let it arrive.
  if (status == IoStatus::kEof && state_ == State::kResponding && answer_ == Answer::kEnded) {
    input_ended_ = true;
    return;
  }
  LoseClient();
}

void HttpConnection::LoseClient() {
  std::function<void()> on_gone;
  if (exchange_ != nullptr) {
    exchange_->gone_ = true;
    on_gone = std::move(exchange_->on_gone_);
  }
  Close();
  if (on_gone) on_gone();
}

void HttpConnection::OnExchangeDropped() {
  exchange_ = nullptr;
  if (answer_ == Answer::kEnded) return;
  if (answer_ == Answer::kStreaming) return Close();
  LOG_WARN("a handler dropped a request without answering it");
  Refuse(500, "the server did not answer this request");
}

void HttpConnection::DetachExchange() {
  if (exchange_ == nullptr) return;
  HttpExchange& exchange = *std::exchange(exchange_, nullptr);
  exchange.connection_ = nullptr;
  // Callbacks often hold the exchange itself: dropping them here ends the circle, and may end the exchange.
  const auto on_gone = std::exchange(exchange.on_gone_, nullptr);
  const auto on_drained = std::exchange(exchange.on_drained_, nullptr);
}

void HttpConnection::Close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  DetachExchange();
  input_deadline_.Clear();
  write_deadline_.Clear();
  stream_.reset();
  host_.Retire(*this);
}

// ---- the exchange, which is the handler's view of this ----

HttpExchange::HttpExchange(HttpRequest request, HttpConnection* connection)
    : request_(std::move(request)), connection_(connection) {}

HttpExchange::~HttpExchange() {
  if (connection_ != nullptr) connection_->OnExchangeDropped();
}

void HttpExchange::Respond(HttpResponse response) {
  if (connection_ != nullptr) connection_->SendResponse(std::move(response));
}

void HttpExchange::StartStream(int status, HttpHeaders headers) {
  if (connection_ != nullptr) connection_->StartStream(status, headers);
}

void HttpExchange::Write(std::string bytes) {
  if (connection_ != nullptr) connection_->Write(std::move(bytes));
}

void HttpExchange::End() {
  if (connection_ != nullptr) connection_->End();
}

size_t HttpExchange::pending_bytes() const {
  return connection_ == nullptr ? 0 : connection_->payload_.size() + connection_->payload_in_flight_;
}

void HttpExchange::OnDrained(std::function<void()> on_drained) {
  if (connection_ != nullptr) on_drained_ = std::move(on_drained);
}

void HttpExchange::Abort() {
  if (connection_ != nullptr) connection_->Close();
}

void HttpExchange::OnClientGone(std::function<void()> on_gone) {
  if (gone_) return on_gone();
  if (connection_ != nullptr) on_gone_ = std::move(on_gone);
}

}  // namespace headrace
