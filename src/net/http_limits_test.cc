// Goal: field fault O-49. Every limit of the server holds over a real socket, costs one connection, answers with the
// status that names it, and the client can read that answer although the server stopped reading.
#include <gtest/gtest.h>

#include "net/http_server.h"
#include "net/test_server.h"

namespace headrace {
namespace {

// The server still works after whatever the test did.
void ExpectAlive(TestServer& server) {
  RawClient client(server);
  EXPECT_EQ(client.Ask(Get("/alive")).body, "GET /alive ");
}

TEST(HttpLimitsTest, SixtyFourKibibytesOfHeadersAreAccepted) {
  TestServer server;
  RawClient client(server);
  std::string headers;
  while (headers.size() < 63 * 1024)
    headers += "X-Filler-" + std::to_string(headers.size()) + ": " + std::string(900, 'h') + "\r\n";
  EXPECT_EQ(client.Ask(Get("/", headers)).status, 200);
}

TEST(HttpLimitsTest, LargerHeadersAre431) {
  TestServer server;
  RawClient client(server);
  client.Send("GET / HTTP/1.1\r\nHost: t\r\nX: " + std::string(70'000, 'h'));
  const auto answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 431);
  EXPECT_NE(answer.body.find("65536"), std::string::npos);
  EXPECT_TRUE(client.AtEnd());
  ExpectAlive(server);
}

TEST(HttpLimitsTest, TenGigabytesAnnouncedAreRefusedUnread) {
  TestServer server;
  RawClient client(server);
  client.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 10737418240\r\n\r\nfirst bytes");
  const auto answer = client.ReadAnswer();
  EXPECT_EQ(answer.status, 413);
  EXPECT_NE(answer.body.find(std::to_string(32 << 20)), std::string::npos) << answer.body;
  EXPECT_TRUE(client.AtEnd());
  ExpectAlive(server);
}

TEST(HttpLimitsTest, AClientThatSendsItsWholeBodyFirstStillReadsThe413) {
  TestServer server({.body_bytes_max = 100'000});
  RawClient client(server);
  EXPECT_EQ(client.Ask(Post("/", std::string(5'000'000, 'x'))).status, 413);
  ExpectAlive(server);
}

TEST(HttpLimitsTest, UpToTheLimitWorksWithAndWithoutLength) {
  constexpr size_t kLimit = 5 << 20;
  TestServer server({.body_bytes_max = kLimit});
  server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, std::to_string(e->request().body.size())}); };
  RawClient client(server);
  for (const size_t size : {size_t{9 * 1024}, kLimit - 1, kLimit}) {
    EXPECT_EQ(client.Ask(Post("/", std::string(size, 'x'))).body, std::to_string(size));
  }
  std::string chunked = "POST / HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "10000\r\n" + std::string(65536, 'y') + "\r\n";
  for (size_t i = 0; i < kLimit / 65536; ++i) chunked += chunk;
  EXPECT_EQ(client.Ask(chunked + "0\r\n\r\n").body, std::to_string(kLimit));
  EXPECT_EQ(client.Ask(chunked + "1\r\ny\r\n0\r\n\r\n").status, 413);
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpLimitsTest, SmugglingClosesTheConnection) {
  TestServer server;
  RawClient client(server);
  const std::string hidden = "GET /hidden HTTP/1.1\r\nHost: t\r\n\r\n";
  client.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
              hidden);
  EXPECT_EQ(client.ReadAnswer().status, 400);
  EXPECT_TRUE(client.AtEnd());  // no second answer
  ExpectAlive(server);
}

TEST(HttpLimitsTest, MalformedRequestsUseTheHandlersErrorBody) {
  class Custom final : public HttpHandler {
   public:
    void OnRequest(ExchangePtr e) override { e->Respond({}); }
    HttpResponse OnProtocolError(int status, std::string_view message) override {
      return {status, {{"Content-Type", "application/json"}}, "{\"error\":\"" + std::string(message) + "\"}"};
    }
  } handler;
  LoopThread thread;
  auto server = thread.On([&] { return HttpServer::Listen(thread.loop, {}, handler); });
  ASSERT_TRUE(server);
  RawClient client((*server)->port());
  const auto answer = client.Ask("GARBAGE\r\n\r\n");
  EXPECT_EQ(answer.status, 400);
  EXPECT_TRUE(answer.body.starts_with("{\"error\":")) << answer.body;
  EXPECT_NE(answer.head.find("application/json"), std::string::npos);
  thread.On([&] { server->reset(); });
}

TEST(HttpLimitsTest, ATlsHelloOnAPlainPortIsAnsweredAtOnce) {
  TestServer server;
  RawClient client(server);
  EXPECT_EQ(client.Ask(std::string_view("\x16\x03\x01\x00\xc8\x01\x00", 7)).status, 400);
}

TEST(HttpLimitsTest, ASlowHeaderSenderIs408) {
  TestServer server({.header_timeout = 50 * kNsPerMs});
  RawClient client(server);
  client.Send("GET / HTTP/1.1\r\nHo");
  EXPECT_EQ(client.ReadAnswer().status, 408);
  EXPECT_TRUE(client.AtEnd());
}

// One byte whenever 5 ms passed without an answer, like a slow-loris; the number of bytes it got rid of.
int Trickle(RawClient& client, std::string_view byte) {
  int sent = 0;
  while (!client.Readable(5) && client.Send(byte) && sent < 4000) ++sent;
  return sent;
}

TEST(HttpLimitsTest, TricklingHeadersDoesNotBuyTime) {
  TestServer server({.header_timeout = 100 * kNsPerMs});
  RawClient client(server);
  client.Send("GET / HTTP/1.1\r\nHost: t\r\nX: ");
  EXPECT_LT(Trickle(client, "a"), 4000);
  EXPECT_EQ(client.ReadAnswer().status, 408);
}

TEST(HttpLimitsTest, ATrickledBodyIs408) {
  TestServer server({.body_timeout = 100 * kNsPerMs});
  RawClient client(server);
  client.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_LT(Trickle(client, "b"), 4000);
  EXPECT_EQ(client.ReadAnswer().status, 408);
  ExpectAlive(server);
}

TEST(HttpLimitsTest, ASteadyBodyMayTakeLongerThanOneTimeout) {
  TestServer server({.body_timeout = 100 * kNsPerMs});
  server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, std::to_string(e->request().body.size())}); };
  RawClient client(server);
  constexpr int kPieces = 60;
  const std::string piece(32 * 1024, 'p');
  client.Send("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: " + std::to_string(kPieces * piece.size()) + "\r\n\r\n");
  for (int i = 0; i < kPieces && !client.Readable(5); ++i) client.Send(piece);  // 300 ms and more in all
  EXPECT_EQ(client.ReadAnswer().body, std::to_string(kPieces * piece.size()));
}

}  // namespace
}  // namespace headrace
