// Goal: whatever the split of the bytes, a request comes out the same; and every message that two parsers could read
// differently is refused with the status that names its fault.
#include "net/request_assembler.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

namespace headrace {
namespace {

using namespace std::string_view_literals;  // literals with NUL bytes

constexpr RequestLimits kLimits{4096, 1000};
const std::string kLastChunk = "\r\n0\r\n\r\n";

// Feeds `bytes` in steps of `step` bytes as a connection does. The refusal's status, 0: done, -1: unfinished.
int Feed(RequestAssembler& assembler, std::string_view bytes, size_t step, std::string* rest = nullptr) {
  std::string inbox;
  while (!bytes.empty()) {
    inbox += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
    for (;;) {
      size_t consumed = 0;
      const auto result = assembler.Feed(inbox, consumed);
      inbox.erase(0, consumed);
      if (result == RequestAssembler::Step::kRefused) return assembler.refusal().status;
      if (assembler.done()) {
        if (rest != nullptr) *rest = inbox + std::string(bytes);
        return 0;
      }
      if (result == RequestAssembler::Step::kNeedMore || inbox.empty()) break;
    }
  }
  return -1;
}

int StatusOf(std::string_view bytes) {
  RequestAssembler whole(kLimits);
  RequestAssembler trickled(kLimits);
  const int status = Feed(whole, bytes, bytes.size());
  EXPECT_EQ(Feed(trickled, bytes, 1), status) << bytes;
  return status;
}

std::string Gzip(const std::string& text) {
  z_stream z{};
  deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string GzipPost(const std::string& body) {
  return "POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

TEST(RequestAssemblerTest, EverySplitGivesTheSameRequest) {
  const std::string bytes =
      "POST /v1/x?beta=true HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nx-one: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
      "4;name=value\r\nabcd\r\n1\r\ne\r\n0\r\nTrailer: t\r\n\r\nGET /next";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    RequestAssembler assembler(kLimits);
    std::string rest;
    ASSERT_EQ(Feed(assembler, bytes, step, &rest), 0);
    const HttpRequest& r = assembler.request();
    EXPECT_EQ(r.method + " " + r.target + " " + r.path + " " + r.query, "POST /v1/x?beta=true /v1/x beta=true");
    EXPECT_EQ(r.body, "abcde");
    EXPECT_EQ(r.Header("X-ONE"), "1");
    EXPECT_EQ(r.headers.size(), 4u);
    EXPECT_EQ(rest, "GET /next");
  }
}

// Beast asserts when fewer than five bytes are at hand at a last chunk that it has looked at before.
TEST(RequestAssemblerTest, AnEmptyChunkedBodyMayArriveByteByByte) {
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 0);
}

TEST(RequestAssemblerTest, AbsoluteAndAsteriskTargetsAreUnderstood) {
  const auto path = [](const std::string& target) {
    RequestAssembler assembler(kLimits);
    EXPECT_EQ(Feed(assembler, "OPTIONS " + target + " HTTP/1.1\r\nHost: a\r\n\r\n", 1000), 0) << target;
    return assembler.request().path;
  };
  EXPECT_EQ(path("http://a:80/v1/models?x"), "/v1/models");
  EXPECT_EQ(path("http://a"), "/");
  EXPECT_EQ(path("http://a?x"), "/");
  EXPECT_EQ(path("*"), "*");
}

TEST(RequestAssemblerTest, SmugglingIsRefused) {
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(StatusOf(post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: +3\r\n\r\nabc"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 0x3\r\n\r\nabc"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Content-Length: 99999999999999999999\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: xchunked\r\n\r\n"), 501);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"), 400);
  EXPECT_EQ(StatusOf(post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcXX0\r\n\r\n"), 400);
}

TEST(RequestAssemblerTest, MalformedHeadsAreRefused) {
  EXPECT_EQ(StatusOf("GARBAGE\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("\x16\x03\x01\x02"), 400);  // a TLS hello on a plain port
  EXPECT_EQ(StatusOf("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(StatusOf("GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"sv), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nX: a\nY: b\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(StatusOf("GET / HTTP/1.1\r\nHost: a\r\nExpect: miracles\r\n\r\n"), 417);
  EXPECT_EQ(StatusOf("GET / HTTP/1.0\r\n\r\n"), 0);
}

TEST(RequestAssemblerTest, HeadersAreBoundedInBytesAndNumber) {
  const std::string start = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(StatusOf(start + "X: " + std::string(3900, 'a') + "\r\n\r\n"), 0);
  EXPECT_EQ(StatusOf(start + "X: " + std::string(5000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(StatusOf("GET /" + std::string(5000, 'a')), 431);
  // To the byte, and however the bytes are split: a parser that sees the start line alone counts the same.
  EXPECT_EQ(StatusOf(start + "X: " + std::string(4096 - start.size() - 7, 'a') + "\r\n\r\n"), 0);
  EXPECT_EQ(StatusOf(start + "X: " + std::string(4097 - start.size() - 7, 'a') + "\r\n\r\n"), 431);
  RequestAssembler many({65'536, 0});
  std::string flood = start;
  for (int i = 0; i < 2000; ++i) flood += "a:\r\n";
  EXPECT_EQ(Feed(many, flood + "\r\n", 1 << 20), 431);
  EXPECT_EQ(many.refusal().message, "there are more than the limit of 1024 headers");
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(9000, 'x')),
            431);
  EXPECT_EQ(
      StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + std::string(9000, 'x')),
      431);
}

TEST(RequestAssemblerTest, TheBodyLimitIsExactAndCountsDecompressedBytes) {
  const auto post = [](size_t n) {
    return "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(n) + "\r\n\r\n" + std::string(n, 'b');
  };
  EXPECT_EQ(StatusOf(post(1000)), 0);
  EXPECT_EQ(StatusOf(post(1001)), 413);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
                     std::string(1001, 'b') + kLastChunk),
            413);
  EXPECT_EQ(StatusOf(GzipPost(Gzip(std::string(1000, 'z')))), 0);
  EXPECT_EQ(StatusOf(GzipPost(Gzip(std::string(1001, 'z')))), 413);
  EXPECT_EQ(StatusOf(GzipPost(Gzip(std::string(800'000, 'z')))), 413);  // 800 bytes on the wire
  RequestAssembler big(kLimits);
  Feed(big, post(1001), 4096);
  EXPECT_NE(big.refusal().message.find("1000"), std::string::npos);
}

TEST(RequestAssemblerTest, GzipBodiesAreUndoneOrRefused) {
  RequestAssembler assembler(kLimits);
  ASSERT_EQ(Feed(assembler, GzipPost(Gzip("hello ") + Gzip("world")), 3), 0);
  EXPECT_EQ(assembler.request().body, "hello world");
  EXPECT_EQ(StatusOf(GzipPost("not gzip at all")), 400);
  const std::string whole = Gzip("hello");
  EXPECT_EQ(StatusOf(GzipPost(whole.substr(0, whole.size() - 3))), 400);
  EXPECT_EQ(StatusOf("POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\nContent-Length: 1\r\n\r\nx"), 415);
}

}  // namespace
}  // namespace headrace
