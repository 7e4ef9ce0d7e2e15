// Goal: HTTP/1.1 and 1.0 as clients know it - keep-alive, pipelining, HEAD, 100-continue, early refusals - and a server
// that says clearly why it cannot listen, keeps to its number of connections, drains in order and leaks no descriptor.
#include "net/http_server.h"

#include <gtest/gtest.h>

#include "net/test_server.h"

namespace headrace {
namespace {

TEST(HttpServerTest, AnswersOneRequestAfterAnotherOnOneConnection) {
  TestServer server;
  RawClient client(server);
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.Ask(Post("/echo?x=" + std::to_string(i), "body"));
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /echo?x=" + std::to_string(i) + " body");
    EXPECT_NE(answer.head.find("X-Test: 1\r\n"), std::string::npos);
    EXPECT_NE(answer.head.find("Date: "), std::string::npos);
    EXPECT_EQ(answer.head.find("Connection:"), std::string::npos);
  }
  EXPECT_EQ(client.Ask(Get("/", "Connection: close\r\n")).status, 200);
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServerTest, PipelinedRequestsAreAnsweredInOrderWithoutLoss) {
  TestServer server;
  RawClient client(server);
  constexpr int kRequests = 2000;
  std::string all;
  for (int i = 0; i < kRequests; ++i)
    all += i % 3 == 0 ? Post("/" + std::to_string(i), "b") : Get("/" + std::to_string(i));
  std::thread sender([&] { client.Send(all); });
  for (int i = 0; i < kRequests; ++i) {
    const std::string expected = i % 3 == 0 ? "POST /" + std::to_string(i) + " b" : "GET /" + std::to_string(i) + " ";
    ASSERT_EQ(client.ReadAnswer().body, expected);
  }
  sender.join();
}

TEST(HttpServerTest, HeadHasTheHeadersAndNoBody) {
  TestServer server;
  RawClient client(server);
  client.Send("HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n" + Get("/next"));
  const auto head = client.ReadAnswer(false);
  EXPECT_EQ(head.status, 200);
  EXPECT_NE(head.head.find("Content-Length: 8\r\n"), std::string::npos);  // "HEAD /x "
  EXPECT_EQ(client.ReadAnswer().body, "GET /next ");
}

TEST(HttpServerTest, AStreamAnsweredToHeadKeepsTheConnection) {
  TestServer server;
  server.handler.on_request = [](const ExchangePtr& e) {
    e->StartStream(200, {});
    e->Write("text");
    e->End();
  };
  RawClient client(server);
  client.Send("HEAD /x HTTP/1.1\r\nHost: t\r\n\r\n" + Get("/next"));
  EXPECT_EQ(client.ReadAnswer(false).status, 200);
  EXPECT_EQ(client.ReadAnswer().body, "text");
}

TEST(HttpServerTest, NoContentHasNeitherBodyNorLength) {
  TestServer server;
  server.handler.on_request = [](const ExchangePtr& e) { e->Respond({204, {}, "ignored"}); };
  RawClient client(server);
  client.Send(Get("/") + Get("/"));
  const auto answer = client.ReadAnswer(false);
  EXPECT_EQ(answer.head.find("Content-Length"), std::string::npos);
  EXPECT_EQ(client.ReadAnswer(false).status, 204);
}

TEST(HttpServerTest, Http10ClosesUnlessAskedToKeep) {
  TestServer server;
  RawClient closing(server);
  EXPECT_EQ(closing.Ask("GET / HTTP/1.0\r\n\r\n").body, "GET / ");
  EXPECT_TRUE(closing.AtEnd());
  RawClient keeping(server);
  const auto first = keeping.Ask("GET /1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(first.head.find("Connection: keep-alive\r\n"), std::string::npos);
  EXPECT_EQ(keeping.Ask("GET /2 HTTP/1.0\r\n\r\n").body, "GET /2 ");
}

TEST(HttpServerTest, Http10StreamsEndWithTheConnection) {
  TestServer server;
  server.handler.on_request = [](const ExchangePtr& e) {
    e->StartStream(200, {});
    e->Write("one ");
    e->Write("two");
    e->End();
  };
  RawClient client(server);
  const auto answer = client.Ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(answer.head.find("chunked"), std::string::npos);
  EXPECT_EQ(answer.body, "one two");
}

TEST(HttpServerTest, ExpectContinueIsAnsweredBeforeTheBody) {
  TestServer server;
  RawClient client(server);
  client.Send("POST /c HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.Ask("body").body, "POST /c body");
  // Refused: no 100, and nothing of the body is wanted.
  server.handler.on_headers = [](const HttpRequest&) { return HttpResponse{401, {}, "no"}; };
  const auto refused = client.Ask("POST /c HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServerTest, OnHeadersRefusesEarlyAndKeepsTheConnectionWhenTheBodyIsShort) {
  TestServer server;
  server.handler.on_headers = [](const HttpRequest& r) -> std::optional<HttpResponse> {
    EXPECT_TRUE(r.body.empty());
    EXPECT_FALSE(r.remote_address.empty());
    if (r.path == "/open") return std::nullopt;
    return HttpResponse{404, {}, "unknown " + r.path};
  };
  RawClient client(server);
  EXPECT_EQ(client.Ask(Get("/a")).body, "unknown /a");
  EXPECT_EQ(client.Ask(Post("/b", "some body")).body, "unknown /b");
  EXPECT_EQ(client.Ask(Post("/open", "x")).body, "POST /open x");
  // A long body is not read: the answer comes at once and the connection ends.
  client.Send("POST /c HTTP/1.1\r\nHost: t\r\nContent-Length: 1000000\r\n\r\npart");
  EXPECT_EQ(client.ReadAnswer().body, "unknown /c");
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServerTest, AnExchangeDroppedUnansweredIs500) {
  TestServer server;
  server.handler.on_request = [](const ExchangePtr&) {};
  RawClient client(server);
  EXPECT_EQ(client.Ask(Get("/")).status, 500);
  EXPECT_TRUE(client.AtEnd());
}

TEST(HttpServerTest, ResponseHeadersCannotBeSplit) {
  TestServer server;
  server.handler.on_request = [](const ExchangePtr& e) {
    e->Respond({200, {{"X-Bad", "a\r\nX-Forged: 1"}, {"X-Good", "1"}, {"Content-Length", "999"}}, "ok"});
  };
  RawClient client(server);
  const auto answer = client.Ask(Get("/"));
  EXPECT_EQ(answer.head.find("Forged"), std::string::npos);
  EXPECT_NE(answer.head.find("X-Good: 1"), std::string::npos);
  EXPECT_EQ(answer.body, "ok");
}

TEST(HttpServerTest, AHalfCloseBehindAnAnsweredRequestStillGetsItsAnswer) {
  TestServer server;
  const std::string large(8 << 20, 'x');
  server.handler.on_request = [&](const ExchangePtr& e) { e->Respond({200, {}, large}); };
  RawClient client(server);
  client.Send(Get("/"));
  client.HalfClose();
  EXPECT_EQ(client.ReadAnswer().body.size(), large.size());
  EXPECT_TRUE(client.AtEnd());
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpServerTest, AboveConnectionsMaxClientsAreToldAndClosed) {
  TestServer server({.connections_max = 2});
  RawClient a(server), b(server);
  EXPECT_EQ(a.Ask(Get("/")).status, 200);
  EXPECT_EQ(b.Ask(Get("/")).status, 200);
  {
    RawClient c(server);
    const auto answer = c.Ask(Get("/"));
    EXPECT_EQ(answer.status, 503);
    EXPECT_NE(answer.body.find("limit of 2 connections; try again later"), std::string::npos) << answer.body;
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
    EXPECT_TRUE(c.AtEnd());
  }
  EXPECT_EQ(a.Ask(Get("/")).status, 200);  // those inside are not disturbed
  b.Close();
  EXPECT_TRUE(server.AwaitConnections(1));
  RawClient d(server);
  EXPECT_EQ(d.Ask(Get("/")).status, 200);
}

// Those that are told so cost memory too: beyond 64 of them a connection is closed without a word.
TEST(HttpServerTest, AFloodAboveConnectionsMaxIsClosedUnanswered) {
  TestServer server({.connections_max = 1});
  RawClient inside(server);
  EXPECT_EQ(inside.Ask(Get("/")).status, 200);
  std::vector<std::unique_ptr<RawClient>> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(std::make_unique<RawClient>(server));
  int told = 0, silent = 0;
  for (const auto& client : flood) ++(client->ReadAnswer().status == 503 ? told : silent);
  EXPECT_GE(told, 64);
  EXPECT_GT(silent, 0);
  EXPECT_EQ(inside.Ask(Get("/")).status, 200);
}

TEST(HttpServerTest, DrainAnswersWhatIsRunningAndClosesTheRest) {
  TestServer server;
  auto held = server.NextExchange();
  RawClient busy(server), idle(server);
  busy.Send(Get("/"));
  const ExchangePtr exchange = held.get();
  EXPECT_TRUE(server.AwaitConnections(2));
  server.thread.On([&] {
    server.server->StopAccepting();
    server.server->CloseIdle();
  });
  EXPECT_TRUE(idle.AtEnd());
  RawClient late(server);
  EXPECT_FALSE(late.connected());
  server.thread.On([&] { exchange->Respond({200, {}, "done"}); });
  const auto answer = busy.ReadAnswer();
  EXPECT_EQ(answer.body, "done");
  EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
  EXPECT_TRUE(busy.AtEnd());
  busy.Close();
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpServerTest, AnExchangeMayOutliveTheServer) {
  ExchangePtr exchange;
  {
    TestServer server;
    auto held = server.NextExchange();
    RawClient client(server);
    client.Send(Get("/"));
    exchange = held.get();
  }
  EXPECT_FALSE(exchange->open());
  exchange->Respond({200, {}, "to nobody"});
}

TEST(HttpServerTest, IdleConnectionsAreClosedInTime) {
  TestServer server({.idle_timeout = 30 * kNsPerMs});
  RawClient fresh(server), used(server);
  EXPECT_EQ(used.Ask(Get("/")).status, 200);
  EXPECT_TRUE(fresh.AtEnd());
  EXPECT_TRUE(used.AtEnd());
}

TEST(HttpServerTest, CannotListenIsOneClearError) {
  TestServer server;
  EventLoop loop;
  ScriptedHandler handler;
  const uint16_t taken = server.server->port();
  const auto message = [&](HttpServerOptions options, ErrorCode code) {
    const auto made = HttpServer::Listen(loop, std::move(options), handler);
    EXPECT_FALSE(made.has_value());
    if (made) return std::string();
    EXPECT_EQ(made.error().code, code) << made.error().message;
    return made.error().message;
  };
  const std::string in_use = message({.port = taken}, ErrorCode::kConflict);
  EXPECT_NE(in_use.find("127.0.0.1:" + std::to_string(taken)), std::string::npos) << in_use;
  EXPECT_NE(in_use.find("choose another port"), std::string::npos) << in_use;
  EXPECT_NE(message({.host = "203.0.113.7"}, ErrorCode::kInvalidArgument).find("203.0.113.7"), std::string::npos);
  EXPECT_NE(message({.tls_cert_file = "/nowhere/cert.pem", .tls_key_file = "/nowhere/key.pem"}, ErrorCode::kNotFound)
                .find("'cert.pem'"),
            std::string::npos);
  EXPECT_NE(message({.tls_cert_file = "cert.pem"}, ErrorCode::kInvalidArgument).find("missing"), std::string::npos);
}

TEST(HttpServerTest, AThousandRoundsLeaveNoDescriptorBehind) {
  TestServer server;
  EXPECT_EQ(RawClient(server).Ask(Get("/")).status, 200);
  ASSERT_TRUE(server.AwaitConnections(0));
  const size_t before = OpenDescriptors();
  for (int round = 0; round < 1000; ++round) {
    RawClient client(server);
    ASSERT_TRUE(client.connected());
    switch (round % 5) {
      case 0:
        break;  // says nothing
      case 1:
        client.Send("GET / HT");
        break;  // half a request
      case 2:
        ASSERT_EQ(client.Ask(Get("/")).status, 200);
        break;
      case 3:
        client.Ask("NONSENSE\r\n\r\n");
        break;
      case 4:
        client.Send(Get("/"));
        break;  // does not wait for the answer
      default:
        FAIL();
    }
    if (round % 2 == 0) client.Reset();
  }
  EXPECT_TRUE(server.AwaitConnections(0));
  EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace headrace
