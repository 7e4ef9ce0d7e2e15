// One client connection of a HttpServer, as a state machine: reads requests one after another, lends each to the
// handler as an exchange, and writes its answer. Internal to net. Loop thread only.
// Invariants: at most one exchange at a time, answers leave in the order of requests; one read is always outstanding
// while an answer runs (that is how a disconnect is noticed) unless kPipelinedBytesMax are buffered; after Close
// nothing of the connection is called except its destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/deadline.h"
#include "net/http_server.h"
#include "net/request_assembler.h"
#include "net/stream.h"

namespace headrace {

// What a connection needs of its server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpServerOptions& options() const = 0;
  virtual HttpHandler& handler() = 0;
  virtual bool draining() const = 0;
  // Destroys it later, never inside the call.
  virtual void Retire(HttpConnection& connection) = 0;
};

class HttpConnection {
 public:
  HttpConnection(EventLoop& loop, ConnectionHost& host, std::unique_ptr<Stream> stream, uint64_t id);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  uint64_t id() const { return id_; }
  bool idle() const { return state_ == State::kIdle && inbox_.empty(); }
  void Start();
  // Answers without reading a request, then closes.
  void StartRefused(int status, std::string_view message);
  void Close();

 private:
  friend class HttpExchange;
  enum class State : uint8_t { kHandshake, kIdle, kHead, kBody, kResponding, kLingering, kClosed };
  enum class Answer : uint8_t { kNone, kStreaming, kEnded };

  // Reading.
  void BecomeIdle();
  void BeginRequest();
  void ReadMore();
  void OnRead(std::string_view bytes, IoStatus status);
  void OnInputExpired();
  void Advance();
  bool AdvanceRequest();
  bool OnHead();
  void AnswerEarly(HttpResponse response);
  void AwaitBody();
  void OnBodyWindowEnd();
  void Dispatch();
  void Refuse(int status, std::string_view message);

  // Writing.
  std::string Head(int status, const HttpHeaders& headers, std::optional<uint64_t> content_length);
  void SendResponse(HttpResponse response);
  void StartStream(int status, const HttpHeaders& headers);
  void Write(std::string bytes);
  void End();
  bool nothing_to_write() const { return wire_.empty() && payload_.empty() && !last_chunk_due_; }
  void Flush();
  void WriteOut(WireBytes bytes);
  void OnWritten(IoStatus status);
  void OnWriteWindowEnd();
  void FinishAnswer();
  void Linger();

  // Ending.
  void OnInputEnd(IoStatus status);
  void LoseClient();
  void OnExchangeDropped();
  void DetachExchange();

  const uint64_t id_;
  ConnectionHost& host_;
  std::unique_ptr<Stream> stream_;  // null once closed
  State state_ = State::kHandshake;
  SystemClock clock_;

  std::string inbox_;  // read, not yet parsed
  bool reading_ = false;
  bool input_ended_ = false;
  std::optional<RequestAssembler> assembler_;
  uint64_t body_window_bytes_ = 0;
  std::optional<HttpResponse> early_;  // waits for a short body to pass by
  Deadline input_deadline_;

  HttpExchange* exchange_ = nullptr;  // held by the handler; clears this when it goes
  Answer answer_ = Answer::kNone;
  bool http10_ = false;
  bool head_request_ = false;
  bool close_after_ = false;
  bool chunked_ = false;
  bool bodiless_ = false;  // of the stream under way: what is written to it goes nowhere
  bool writing_ = false;
  std::string wire_;     // framed bytes that go before payload_
  std::string payload_;  // given by the handler, not framed yet
  size_t payload_in_flight_ = 0;
  bool last_chunk_due_ = false;
  bool overflowed_ = false;          // above pending_bytes_max
  uint64_t write_window_start_ = 0;  // the stream's bytes_written at its beginning
  Deadline write_deadline_;
};

}  // namespace headrace
