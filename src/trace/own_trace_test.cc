// Goal: what is recorded is read back exactly; a crash costs the last frame and nothing before it; damage and foreign
// versions are errors that say where and what to do; later versions may add fields and kinds of frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "trace/trace_frames.h"
#include "trace/trace_reader.h"
#include "trace/trace_writer.h"

namespace headrace {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Result<Trace> Load(const std::string& bytes) {
  const auto source = SourceFromMemory(std::as_bytes(std::span(bytes)), "own.trace");
  return LoadTrace(*source);
}

std::vector<RecordedRequest> SomeRequests(int count) {
  Random random(6);
  std::vector<RecordedRequest> requests;
  for (int i = 0; i < count; ++i) {
    RecordedRequest r{.arrival_us = i * 1000, .id = static_cast<uint64_t>(i) + 1};
    r.previous = random.Below(static_cast<uint64_t>(i) + 1);
    r.tenant = random.Next();
    r.band = static_cast<int32_t>(random.Below(4));
    r.prompt_tokens = 1 + static_cast<int64_t>(random.Below(5000));
    r.output_tokens = static_cast<int64_t>(random.Below(2000));
    r.cached_tokens = static_cast<int64_t>(random.Below(static_cast<uint64_t>(r.prompt_tokens)));
    for (int64_t b = 0; b < r.prompt_tokens / 64; ++b) r.blocks.push_back({random.Next(), random.Next()});
    r.sampling = {0.7f, 0.9f, 0.05f, 40, random.Next(), 256};
    r.started_us = 10;
    r.first_token_us = static_cast<int64_t>(random.Below(1 << 20));
    r.end_us = i % 3 == 0 ? -1 : r.first_token_us + 5;
    r.end = static_cast<RecordedEnd>(random.Below(6));
    requests.push_back(r);
  }
  return requests;
}

// As a recorder writes: a frame for every `each` requests.
std::string Written(const std::vector<RecordedRequest>& requests, size_t each, std::vector<size_t>* ends = nullptr) {
  std::string bytes;
  TraceWriter writer(
      [&](std::string_view more) {
        bytes += more;
        if (ends != nullptr) ends->push_back(bytes.size());
        return Status();
      },
      false);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(writer.Add(requests[i]));
    if (i % each == each - 1) EXPECT_TRUE(writer.Flush());
  }
  EXPECT_TRUE(writer.Flush());
  return bytes;
}

TEST(OwnTrace, ReadsBackWhatWasWritten) {
  std::vector<RecordedRequest> requests = SomeRequests(500);
  const auto trace = Load(Written(requests, 7));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->requests, requests);
  EXPECT_EQ(trace->cut_bytes, 0u);
  std::ranges::reverse(requests);
  EXPECT_EQ(Load(Written(requests, 7))->requests, trace->requests) << "recorded as they end, read by arrival";
}

TEST(OwnTrace, ACrashCostsTheLastFrame) {
  const std::vector<RecordedRequest> requests = SomeRequests(20);
  std::vector<size_t> ends;
  const std::string bytes = Written(requests, 5, &ends);
  ASSERT_EQ(ends.size(), 4u);
  for (size_t length = kTraceHeaderBytes; length < bytes.size(); ++length) {
    const auto trace = Load(bytes.substr(0, length));
    ASSERT_TRUE(trace) << length << ": " << trace.error().message;
    const auto whole = static_cast<size_t>(std::ranges::count_if(ends, [&](size_t end) { return end <= length; }));
    ASSERT_EQ(trace->requests.size(), 5 * whole) << length;
    ASSERT_EQ(trace->cut_bytes, length - (whole == 0 ? kTraceHeaderBytes : ends[whole - 1])) << length;
  }
  for (size_t length = 1; length < kTraceHeaderBytes; ++length)
    EXPECT_EQ(Load(bytes.substr(0, length)).error().code, ErrorCode::kCorruptData) << length;
}

TEST(OwnTrace, AnyDamagedByteIsFound) {
  const std::vector<RecordedRequest> requests = SomeRequests(3);
  const std::string bytes = Written(requests, 2);
  for (size_t at = kTraceMagic.size(); at < bytes.size(); at += 1 + at / 64) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    const auto trace = Load(damaged);
    // A length that points past the end looks like a cut; nothing wrong is ever read.
    if (trace) {
      ASSERT_GT(trace->cut_bytes, 0u) << at;
      for (const RecordedRequest& r : trace->requests) ASSERT_NE(std::ranges::find(requests, r), requests.end()) << at;
    } else {
      ASSERT_THAT(trace.error().message, AllOf(HasSubstr("own.trace, byte "), HasSubstr("cut the file there"))) << at;
    }
  }
}

// A file of version 1 as it lies on somebody's disk: it stays readable.
TEST(OwnTrace, VersionOneStaysAsItIs) {
  const auto file = OpenFile(HEADRACE_SOURCE_DIR "/src/trace/testdata/version1.trace");
  ASSERT_TRUE(file) << file.error().message;
  const auto trace = LoadTrace(**file);
  ASSERT_TRUE(trace) << trace.error().message;
  const RecordedRequest first{.arrival_us = 0,
                              .id = 1,
                              .tenant = 0x1122334455667788,
                              .band = 1,
                              .prompt_tokens = 130,
                              .output_tokens = 7,
                              .cached_tokens = 64,
                              .blocks = {{1, 2}, {3, 4}, {5, 6}},
                              .sampling = {0.5f, 0.25f, 0.125f, 40, 99, 256},
                              .started_us = 5,
                              .first_token_us = 250,
                              .end_us = 900,
                              .end = RecordedEnd::kStop};
  const RecordedRequest second{.arrival_us = 1000, .id = 2, .previous = 1, .prompt_tokens = 1};
  EXPECT_EQ(trace->requests, (std::vector{first, second}));
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u) << "the check value of CRC-32C";
}

TEST(OwnTrace, OtherVersionsAreNamed) {
  std::string header(kTraceMagic);
  AppendU32(&header, 2);
  AppendU32(&header, Crc32c(header));
  const auto trace = Load(header);
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(trace.error().message, AllOf(HasSubstr("version 2"), HasSubstr("version 1"), HasSubstr("newer")));
}

TEST(OwnTrace, LaterFieldsAndFramesArePassedOver) {
  const std::vector<RecordedRequest> requests = SomeRequests(2);
  std::string bytes = EncodeTraceHeader();
  const std::string unknown = "whatever";
  bytes += EncodeFrameHeader(static_cast<FrameKind>(9), unknown) + unknown;
  std::string payload;
  for (const RecordedRequest& request : requests) {
    std::string one;
    EncodeRequest(request, &one);
    // Its length is a varint of two bytes or one; what follows it gets longer by three.
    size_t length = static_cast<uint8_t>(one[0]) & 0x7F, head = 1;
    for (int shift = 7; (static_cast<uint8_t>(one[head - 1]) & 0x80) != 0; shift += 7)
      length |= static_cast<size_t>(static_cast<uint8_t>(one[head++]) & 0x7F) << shift;
    length += 3;
    for (; length >= 0x80; length >>= 7) payload.push_back(static_cast<char>(length | 0x80));
    payload.push_back(static_cast<char>(length));
    payload += one.substr(head) + "new";
  }
  bytes += EncodeFrameHeader(FrameKind::kRequests, payload) + payload;
  const auto trace = Load(bytes);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->requests, requests);
}

TEST(OwnTrace, AbsurdFieldsAndFramesAreErrorsWithAPlace) {
  const auto load_payload = [](const std::string& payload) {
    return Load(EncodeTraceHeader() + EncodeFrameHeader(FrameKind::kRequests, payload) + payload);
  };
  std::string payload;
  RecordedRequest request{.id = 1, .prompt_tokens = kTraceTokensMax + 1};
  EncodeRequest(request, &payload);
  EXPECT_THAT(load_payload(payload).error().message, AllOf(HasSubstr("frame at byte 16"), HasSubstr("prompt tokens")));
  EXPECT_THAT(load_payload("\x05"
                           "abc")
                  .error()
                  .message,
              HasSubstr("byte 16"));
  EXPECT_THAT(load_payload(std::string(30, '\xFF')).error().message, HasSubstr("byte 16"));
  // A frame that says it is longer than any may be.
  std::string header = EncodeFrameHeader(FrameKind::kRequests, "");
  header.replace(8, 4, std::string("\xFF\xFF\xFF\x7F", 4));
  EXPECT_THAT(Load(EncodeTraceHeader() + header).error().message, HasSubstr("frame's header"));
  // What no reader would take is not written.
  TraceWriter writer([](std::string_view) { return Status(); }, false);
  EXPECT_FALSE(writer.Add(request));
  EXPECT_EQ(writer.pending_bytes(), 0u);
}

TEST(OwnTrace, AWriterThatCannotWriteSaysSoAndStaysSmall) {
  int calls = 0;
  TraceWriter writer(
      [&](std::string_view) {
        ++calls;
        return Status(Fail(ErrorCode::kIo, "no space left"));
      },
      false);
  const std::vector<RecordedRequest> requests = SomeRequests(200);
  int failed = 0;
  for (int round = 0; round < 100; ++round) {
    for (const RecordedRequest& request : requests) failed += writer.Add(request) ? 0 : 1;
    ASSERT_LE(writer.pending_bytes(), kTraceFrameBytesMax);
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(failed, calls);
}

}  // namespace
}  // namespace headrace
