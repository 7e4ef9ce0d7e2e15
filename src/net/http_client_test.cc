// Goal: a download resumes, follows redirects without giving credentials away, stops when its sink says so, and tells a
// refused connection, a TLS fault, a silent server and a cut connection apart. TLS is proved in both directions.
#include "net/http_client.h"

#include <gtest/gtest.h>

#include <fstream>

#include "net/http_url.h"
#include "net/test_certificate.h"
#include "net/test_server.h"

namespace headrace {
namespace {

std::string Pattern(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 251);
  return out;
}

HttpBodySink AppendTo(std::string& out) {
  return [&out](std::span<const std::byte> bytes) -> Status {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
}

// Serves `file` with ranges; the first `cuts` answers end in the middle.
void ServeFile(TestServer& server, const std::string& file, int cuts) {
  server.handler.on_request = [&file, left = std::make_shared<int>(cuts)](ExchangePtr e) {
    const std::string_view range = e->request().Header("Range");
    const size_t from = range.empty() ? 0 : std::stoul(std::string(range.substr(6)));
    const std::string rest = file.substr(from);
    if ((*left)-- <= 0) return e->Respond({range.empty() ? 200 : 206, {}, rest});
    e->StartStream(range.empty() ? 200 : 206, {});
    e->Write(rest.substr(0, rest.size() / 2));
    e->OnDrained([e] { e->Abort(); });
  };
}

TEST(HttpClientTest, ACutDownloadResumesWithARange) {
  TestServer server;
  const std::string file = Pattern(3'000'000);
  ServeFile(server, file, 2);
  std::string got;
  int cuts = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    HttpFetchRequest request{.url = server.Url("/file")};
    if (!got.empty()) request.headers = {{"Range", "bytes=" + std::to_string(got.size()) + "-"}};
    int status = 0;
    const size_t before = got.size();
    const auto result = HttpFetch(request, AppendTo(got), [&](const HttpResult& head) -> Status {
      status = head.status;
      return {};
    });
    EXPECT_EQ(status, before == 0 ? 200 : 206);
    if (result) {
      EXPECT_EQ(result->bytes_received, file.size() - before);
      break;
    }
    ++cuts;
    EXPECT_EQ(result.error().code, ErrorCode::kIo);
    EXPECT_EQ(result.error().field, "cut");
    EXPECT_EQ(result.error().message, "connection cut after " + std::to_string(got.size() - before) + " bytes");
  }
  EXPECT_EQ(cuts, 2);
  EXPECT_EQ(got, file);
}

TEST(HttpClientTest, PostsAndReadsErrorBodies) {
  TestServer server;
  std::string body;
  auto result = HttpFetch({.method = "POST", .url = server.Url("/p?q=1"), .body = "hello"}, AppendTo(body));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(body, "POST /p?q=1 hello");
  EXPECT_EQ(result->Header("x-test"), "1");
  server.handler.on_request = [](ExchangePtr e) { e->Respond({404, {}, "no such file"}); };
  body.clear();
  result = HttpFetch({.url = server.Url("/")}, AppendTo(body));
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status, 404);
  EXPECT_EQ(result->error_body, "no such file");
  EXPECT_EQ(body, "");
  result = HttpFetch({.method = "HEAD", .url = server.Url("/")}, {});
  EXPECT_EQ(result ? result->status : -1, 404);
}

TEST(HttpClientTest, RedirectsAreFollowedAndCredentialsStayHome) {
  TestServer other, server;
  std::string seen_at_other, seen_at_home;
  other.handler.on_request = [&](ExchangePtr e) {
    seen_at_other = std::string(e->request().Header("Authorization")) + "|" + std::string(e->request().Header("Range"));
    e->Respond({200, {}, "content"});
  };
  server.handler.on_request = [&](ExchangePtr e) {
    if (e->request().path == "/start") return e->Respond({302, {{"Location", "../moved?x=1"}}, "see there"});
    seen_at_home = std::string(e->request().Header("Authorization"));
    e->Respond({307, {{"Location", other.Url("/file")}}, ""});
  };
  std::string body;
  const auto result = HttpFetch(
      {.url = server.Url("/start"), .headers = {{"Authorization", "Bearer k"}, {"Range", "bytes=0-"}}}, AppendTo(body));
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(body, "content");
  EXPECT_EQ(result->url, other.Url("/file"));
  EXPECT_EQ(seen_at_home, "Bearer k");
  EXPECT_EQ(seen_at_other, "|bytes=0-");
}

TEST(HttpClientTest, RedirectsEnd) {
  TestServer server;
  server.handler.on_request = [](ExchangePtr e) { e->Respond({302, {{"Location", "/again"}}, ""}); };
  const auto loop = HttpFetch({.url = server.Url("/"), .max_redirects = 3}, {});
  ASSERT_FALSE(loop);
  EXPECT_EQ(loop.error().field, "redirect");
  EXPECT_EQ(loop.error().message, "more than 3 redirects");
  const auto asis = HttpFetch({.url = server.Url("/"), .max_redirects = 0}, {});
  EXPECT_EQ(asis ? asis->status : -1, 302);
  server.handler.on_request = [](ExchangePtr e) { e->Respond({302, {{"Location", "file:///etc/passwd"}}, ""}); };
  const auto file = HttpFetch({.url = server.Url("/")}, {});
  EXPECT_EQ(file ? "" : file.error().field, "redirect");
}

TEST(HttpClientTest, ASinkStopsTheDownloadWithItsOwnError) {
  TestServer server;
  server.handler.on_request = [](ExchangePtr e) { e->Respond({200, {}, std::string(10 << 20, 'x')}); };
  size_t got = 0;
  const auto result = HttpFetch({.url = server.Url("/")}, [&](std::span<const std::byte> bytes) -> Status {
    got += bytes.size();
    if (got > 100'000) return Fail(ErrorCode::kCancelled, "enough");
    return {};
  });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "enough");
  EXPECT_LT(got, size_t{1} << 20);
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST(HttpClientTest, FailuresAreToldApart) {
  uint16_t free_port = 0;
  {
    TestServer gone;
    free_port = gone.server->port();
  }
  const auto refused = HttpFetch({.url = "http://127.0.0.1:" + std::to_string(free_port) + "/"}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().field, "connect");

  TestServer server;
  auto held = server.NextExchange();
  const auto silent = HttpFetch({.url = server.Url("/"), .idle_timeout = 30 * kNsPerMs}, {});
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code, ErrorCode::kDeadlineExceeded);
  server.thread.On([exchange = held.get()]() mutable { exchange.reset(); });

  server.handler.on_request = [](ExchangePtr e) { e->Abort(); };
  const auto cut = HttpFetch({.url = server.Url("/")}, {});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().field, "cut");

  const auto plain = HttpFetch({.url = "https://127.0.0.1:" + std::to_string(server.server->port()) + "/"}, {});
  ASSERT_FALSE(plain);
  EXPECT_EQ(plain.error().field, "tls") << plain.error().message;

  for (const char* url : {"ftp://a/", "nonsense", "http://", "http://u:p@a/", "http://a:99999999/"}) {
    const auto bad = HttpFetch({.url = url}, {});
    EXPECT_FALSE(bad) << url;
  }
  const auto split = HttpFetch({.url = server.Url("/"), .headers = {{"X", "a\r\nY: b"}}}, {});
  EXPECT_FALSE(split);
}

TEST(HttpClientTest, AnErrorsBodyIsCut) {
  TestServer server;
  server.handler.on_request = [](ExchangePtr e) { e->Respond({500, {}, std::string(200'000, 'x')}); };
  const auto result = HttpFetch({.url = server.Url("/")}, {});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->status, 500);
  EXPECT_EQ(result->error_body.size(), size_t{64} << 10);
}

TEST(HttpClientTest, LargeHeadersOfAServerAreAnError) {
  TestServer server;
  server.handler.on_request = [](ExchangePtr e) {
    e->Respond({200, {{"X", std::string(HttpFetchRequest{}.header_bytes_max, 'h')}}, ""});
  };
  const auto result = HttpFetch({.url = server.Url("/")}, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().field, "response");
  EXPECT_NE(result.error().message.find("larger than the limit of 65536 bytes"), std::string::npos)
      << result.error().message;
}

TEST(HttpClientTest, DroppingTheCallCancelsIt) {
  TestServer server;
  auto held = server.NextExchange();
  std::unique_ptr<HttpCall> call;
  server.thread.On([&] {
    call = StartFetch(server.thread.loop, {.url = server.Url("/")},
                      {.on_head = {}, .on_body = {}, .on_done = [](auto) { FAIL(); }});
  });
  const ExchangePtr exchange = held.get();
  std::promise<void> gone;
  server.thread.On([&] {
    exchange->OnClientGone([&] { gone.set_value(); });
    call.reset();
  });
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(1)), std::future_status::ready);
}

TEST(HttpUrlTest, TakesUrlsApart) {
  const auto url = ParseHttpUrl("https://Host.Example:8443/a%20b?c=d#part");
  ASSERT_TRUE(url) << url.error().message;
  EXPECT_EQ(url->host + " " + url->port + " " + url->target, "host.example 8443 /a%20b?c=d");
  const auto literal = ParseHttpUrl("http://[::1]");
  ASSERT_TRUE(literal) << literal.error().message;
  EXPECT_EQ(literal->host + " " + literal->port + " " + literal->target + " " + literal->authority, "::1 80 / [::1]");
  EXPECT_EQ(*ResolveUrl("https://a/b/c?d", "../x?y#z"), "https://a/x?y");
  EXPECT_EQ(*ResolveUrl("https://a/b", "//cdn/x"), "https://cdn/x");
  EXPECT_FALSE(ResolveUrl("https://a/b", "http://[broken"));
}

TEST(HttpUrlTest, LongUrlsAreRefusedAndNotRepeated) {
  const std::string start = "https://a/";
  EXPECT_TRUE(ParseHttpUrl(start + std::string(8192 - start.size(), 'x')));
  const std::string longer = start + std::string(8193 - start.size(), 'x');
  for (const Error& error : {ParseHttpUrl(longer).error(), ResolveUrl("https://a/", longer).error()}) {
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.field, "url");
    EXPECT_NE(error.message.find("longer than 8192 bytes"), std::string::npos) << error.message;
    EXPECT_LT(error.message.size(), 400u);
  }
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() {
    const auto made = MakeSelfSignedCertificate(dir_.string());
    options_.tls_cert_file = made.cert_file;
    options_.tls_key_file = made.key_file;
  }
  ~TlsTest() override { std::filesystem::remove_all(dir_); }

  static std::filesystem::path FreshFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace_tls_XXXXXX").string();
    return mkdtemp(name.data()) == nullptr ? std::filesystem::path() : std::filesystem::path(name);
  }
  const std::filesystem::path dir_ = FreshFolder();
  HttpServerOptions options_;
};

TEST_F(TlsTest, RoundTripsAndStreams) {
  TestServer server(options_);
  std::string body;
  const auto echoed = HttpFetch(
      {.method = "POST", .url = server.Url("/t"), .body = Pattern(300'000), .ca_file = options_.tls_cert_file},
      AppendTo(body));
  ASSERT_TRUE(echoed) << echoed.error().message;
  EXPECT_EQ(body, "POST /t " + Pattern(300'000));
  server.handler.on_request = [](ExchangePtr e) {
    e->StartStream(200, {});
    for (int i = 0; i < 10'000; ++i) e->Write("0123456789");
    e->End();
  };
  body.clear();
  const auto streamed = HttpFetch({.url = server.Url("/"), .ca_file = options_.tls_cert_file}, AppendTo(body));
  ASSERT_TRUE(streamed) << streamed.error().message;
  EXPECT_EQ(body.size(), 100'000u);
  EXPECT_TRUE(server.AwaitConnections(0));
}

TEST_F(TlsTest, AnUnknownCertificateOrNameIsRefused) {
  TestServer server(options_);
  const auto unknown = HttpFetch({.url = server.Url("/")}, {});
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().field, "tls");
  EXPECT_NE(unknown.error().message.find("self-signed"), std::string::npos) << unknown.error().message;
  const std::string by_name = "https://ip6-localhost.invalid:" + std::to_string(server.server->port());
  EXPECT_FALSE(HttpFetch({.url = by_name, .ca_file = options_.tls_cert_file}, {}));
}

TEST_F(TlsTest, ACutStreamIsNotAFinishedOne) {
  TestServer server(options_);
  server.handler.on_request = [](ExchangePtr e) {
    e->StartStream(200, {});
    e->Write("part");
    e->OnDrained([e] { e->Abort(); });
  };
  const auto cut = HttpFetch({.url = server.Url("/"), .ca_file = options_.tls_cert_file}, {});
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().field, "cut");
}

TEST_F(TlsTest, PlainBytesAndOldVersionsGetNowhere) {
  TestServer server(options_);
  RawClient plain(server);
  plain.Send(Get("/"));
  plain.ReadToEnd();
  EXPECT_TRUE(server.AwaitConnections(0));
  EXPECT_EQ(NegotiatedTlsVersion(server.server->port(), 0x0302), 0);       // TLS 1.1
  EXPECT_EQ(NegotiatedTlsVersion(server.server->port(), 0x0303), 0x0303);  // TLS 1.2
  EXPECT_EQ(NegotiatedTlsVersion(server.server->port(), 0x0304), 0x0304);
}

TEST_F(TlsTest, AClientGoneIsNoticedThroughTls) {
  TestServer server(options_);
  auto held = server.NextExchange();
  std::unique_ptr<HttpCall> call;
  server.thread.On([&] {
    call = StartFetch(server.thread.loop, {.url = server.Url("/"), .ca_file = options_.tls_cert_file},
                      {.on_head = {}, .on_body = {}, .on_done = [](auto) { FAIL(); }});
  });
  const ExchangePtr exchange = held.get();
  std::promise<void> gone;
  server.thread.On([&] {
    exchange->OnClientGone([&] { gone.set_value(); });
    exchange->StartStream(200, {});
    call.reset();
  });
  EXPECT_EQ(gone.get_future().wait_for(std::chrono::seconds(1)), std::future_status::ready);
}

TEST_F(TlsTest, AKeyOfAnotherCertificateIsAClearError) {
  const auto other = MakeSelfSignedCertificate((dir_ / "other").string());
  options_.tls_key_file = other.key_file;
  EventLoop loop;
  ScriptedHandler handler;
  const auto made = HttpServer::Listen(loop, options_, handler);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().field, "tls_key_file");
  std::ofstream(dir_ / "bad.pem") << "this is no certificate";
  options_.tls_cert_file = (dir_ / "bad.pem").string();
  const auto bad = HttpServer::Listen(loop, options_, handler);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().field, "tls_cert_file");
}

}  // namespace
}  // namespace headrace
