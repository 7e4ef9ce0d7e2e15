// Goal: field faults O-04 and O-05. However a client leaves - reset, close, half-close, reading no more - the handler
// learns it once and soon; what is written arrives whole and in order; a cut stream never looks finished.
#include <gtest/gtest.h>

#include <csignal>

#include "net/http_server.h"
#include "net/test_server.h"

namespace headrace {
namespace {

constexpr auto kSoon = std::chrono::seconds(1);

// A stream that was started for a client, and the promise that its end is reported.
struct RunningStream {
  explicit RunningStream(TestServer& server, RawClient& client) : server(server) {
    auto next = server.NextExchange();
    client.Send(Get("/stream"));
    exchange = next.get();
    server.thread.On([&] {
      exchange->OnClientGone([this] {
        ++calls;
        gone.set_value();
      });
      exchange->StartStream(200, {{"Content-Type", "text/event-stream"}});
      exchange->Write("data: 1\n\n");
    });
  }
  ~RunningStream() {
    server.thread.On([&] { exchange.reset(); });
  }
  bool GoneSoon(std::chrono::milliseconds within = kSoon) {
    return gone_future.wait_for(within) == std::future_status::ready;
  }
  TestServer& server;
  ExchangePtr exchange;
  std::promise<void> gone;
  std::future<void> gone_future = gone.get_future();
  int calls = 0;
};

TEST(HttpStreamTest, AResetIsNoticedWithinASecondAndOnce) {
  TestServer server;
  RawClient client(server);
  RunningStream stream(server, client);
  client.ReadUntil("data: 1\n\n");
  client.Reset();
  EXPECT_TRUE(stream.GoneSoon());
  server.thread.On([&] {
    EXPECT_FALSE(stream.exchange->open());
    stream.exchange->Write("more");
    stream.exchange->End();
    stream.exchange->Abort();
    int late = 0;
    stream.exchange->OnClientGone([&] { ++late; });  // told at once
    EXPECT_EQ(late, 1);
  });
  EXPECT_EQ(stream.calls, 1);
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpStreamTest, ACloseIsNoticedWithinASecond) {
  TestServer server;
  RawClient client(server);
  RunningStream stream(server, client);
  client.ReadUntil("data: 1\n\n");
  client.Close();
  EXPECT_TRUE(stream.GoneSoon());
}

TEST(HttpStreamTest, AHalfCloseCountsAsGone) {
  TestServer server;
  RawClient client(server);
  RunningStream stream(server, client);
  client.HalfClose();
  EXPECT_TRUE(stream.GoneSoon());
}

TEST(HttpStreamTest, AClientThatLeavesBeforeAnyAnswerIsNoticedToo) {
  TestServer server;
  RawClient client(server);
  auto next = server.NextExchange();
  client.Send(Post("/", "x"));
  const ExchangePtr exchange = next.get();
  std::promise<void> gone;
  server.thread.On([&] { exchange->OnClientGone([&] { gone.set_value(); }); });
  client.Close();
  EXPECT_EQ(gone.get_future().wait_for(kSoon), std::future_status::ready);
}

TEST(HttpStreamTest, AReaderThatStopsIsGoneAfterTheWriteTimeout) {
  TestServer server({.write_timeout = 200 * kNsPerMs});
  RawClient client(server, 4096);
  RunningStream stream(server, client);
  // Written as a generation would: a next piece whenever the last has left.
  server.thread.On([&] {
    HttpExchange* e = stream.exchange.get();
    const auto next = [e] { e->Write(std::string(1000, 't')); };
    e->OnDrained(next);
    next();
  });
  EXPECT_TRUE(stream.GoneSoon(std::chrono::seconds(5)));
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpStreamTest, OneLargeAnswerToAStalledReaderEnds) {
  TestServer server({.write_timeout = 200 * kNsPerMs});
  server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, std::string(32 << 20, 'x')}); };
  RawClient client(server, 4096);
  client.Send(Get("/"));
  EXPECT_TRUE(server.AwaitConnections(1));
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpStreamTest, AWriterThatOutrunsItsReaderIsBounded) {
  TestServer server({.pending_bytes_max = 1 << 20});
  RawClient client(server, 4096);
  RunningStream stream(server, client);
  server.thread.On([&] {
    for (int i = 0; i < 100 && stream.exchange->open(); ++i) stream.exchange->Write(std::string(1 << 17, 'x'));
    EXPECT_LE(stream.exchange->pending_bytes(), size_t{3} << 20);
    EXPECT_EQ(stream.calls, 0);  // never inside Write
  });
  EXPECT_TRUE(stream.GoneSoon());
}

TEST(HttpStreamTest, TenThousandSmallWritesArriveInOrderAndCoalesced) {
  TestServer server;
  std::string expected;
  for (int i = 0; i < 10'000; ++i) expected += std::to_string(i) + "\n";
  server.handler.on_request = [](ExchangePtr e) {
    e->StartStream(200, {});
    for (int i = 0; i < 10'000; ++i) e->Write(std::to_string(i) + "\n");
    EXPECT_GT(e->pending_bytes(), 0u);
    e->End();
  };
  RawClient client(server);
  client.Send(Get("/"));
  const std::string head = client.ReadUntil("\r\n\r\n");
  std::string body;
  int chunks = 0;
  for (;; ++chunks) {
    const size_t size = std::stoul("0" + client.ReadUntil("\r\n"), nullptr, 16);
    body += client.ReadExactly(size);
    client.ReadExactly(2);
    if (size == 0) break;
  }
  EXPECT_EQ(body, expected);
  EXPECT_LE(chunks, 10);
  server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, "still open"}); };
  EXPECT_EQ(client.Ask(Get("/")).body, "still open");
}

TEST(HttpStreamTest, WritesFromManyTurnsOfTheLoopKeepTheirOrder) {
  TestServer server;
  auto next = server.NextExchange();
  RawClient client(server);
  client.Send(Get("/"));
  ExchangePtr exchange = next.get();
  std::string expected;
  server.thread.loop.Post([&] { exchange->StartStream(200, {}); });
  for (int i = 0; i < 10'000; ++i) {
    expected += std::to_string(i) + ",";
    server.thread.loop.Post([&, i] { exchange->Write(std::to_string(i) + ","); });
  }
  server.thread.loop.Post([&] {
    exchange->End();
    exchange.reset();
  });
  EXPECT_EQ(client.ReadAnswer().body, expected);
}

TEST(HttpStreamTest, PipelinedBytesBehindAStreamAreKept) {
  TestServer server;
  RawClient client(server);
  auto stream = std::make_unique<RunningStream>(server, client);
  // More than is buffered: the rest waits in the kernel, and the loop does not spin on it.
  constexpr int kRequests = 3000;
  std::string more;
  for (int i = 0; i < kRequests; ++i) more += Post("/" + std::to_string(i), std::string(50, 'p'));
  std::thread sender([&] { client.Send(more); });
  server.thread.On([&] {
    server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, e->request().path}); };
    stream->exchange->Write("data: 2\n\n");
    stream->exchange->End();
  });
  EXPECT_EQ(client.ReadAnswer().body, "data: 1\n\ndata: 2\n\n");
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(client.ReadAnswer().body, "/" + std::to_string(i));
  sender.join();
  EXPECT_EQ(stream->calls, 0);
}

TEST(HttpStreamTest, AnAbortedOrDroppedStreamHasNoLastChunk) {
  TestServer server;
  for (const bool abort : {true, false}) {
    RawClient client(server);
    RunningStream stream(server, client);
    client.ReadUntil("data: 1\n\n");
    server.thread.On([&] { abort ? stream.exchange->Abort() : stream.exchange.reset(); });
    EXPECT_EQ(client.ReadToEnd(), "\r\n");  // the end of the first chunk, and no "0"
    EXPECT_EQ(stream.calls, 0);
  }
}

TEST(HttpStreamTest, WritingToAClosedSocketRaisesNoSignal) {
  std::signal(SIGPIPE, SIG_DFL);
  TestServer server;
  for (int round = 0; round < 50; ++round) {
    RawClient client(server);
    RunningStream stream(server, client);
    round % 2 == 0 ? client.Reset() : client.Close();
    server.thread.On([&] {
      for (int i = 0; i < 100; ++i) stream.exchange->Write(std::string(10'000, 'x'));
    });
    EXPECT_TRUE(stream.GoneSoon());
  }
}

// O-04: eight at once, four of them end at random moments in four ways, the others are whole.
TEST(HttpStreamTest, SurvivorsAreUntouchedByThoseWhoLeave) {
  TestServer server;
  std::atomic<int> gone{0};
  struct Generation {
    ExchangePtr exchange;
    int next = 0;
  };
  std::function<void(std::shared_ptr<Generation>)> step = [&](std::shared_ptr<Generation> g) {
    if (!g->exchange->open()) return;
    if (g->next == 50) return g->exchange->End();
    g->exchange->Write(std::to_string(g->next++) + " ");
    server.thread.loop.After(100 * kNsPerUs, [&, g] { step(g); });
  };
  server.handler.on_request = [&](ExchangePtr e) {
    e->OnClientGone([&] { ++gone; });
    e->StartStream(200, {});
    step(std::make_shared<Generation>(Generation{std::move(e)}));
  };
  std::string whole;
  for (int i = 0; i < 50; ++i) whole += std::to_string(i) + " ";
  for (int round = 0; round < 50; ++round) {
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 8; ++i) clients.push_back(std::make_unique<RawClient>(server));
    for (auto& client : clients) client->Send(Get("/"));
    for (int i = 0; i < 4; ++i) {
      if (i > 1) clients[i]->ReadUntil(std::to_string(round % 40) + " ");
      i % 2 == 0 ? clients[i]->Reset() : clients[i]->Close();
    }
    for (int i = 4; i < 8; ++i) ASSERT_EQ(clients[i]->ReadAnswer().body, whole);
  }
  EXPECT_TRUE(server.AwaitConnections(0));
  EXPECT_LE(gone.load(), 200);
}

}  // namespace
}  // namespace headrace
