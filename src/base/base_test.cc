// Goal: the small contracts that every room leans on: errors travel unchanged, rings keep order and refuse when full,
// a doorbell is never lost, keyed random numbers depend on their key alone, files are read within their bounds.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/doorbell.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/result.h"
#include "base/ring.h"

namespace headrace {
namespace {

Result<int> Half(int x) {
  if (x % 2 != 0) return Fail(ErrorCode::kInvalidArgument, "odd", "/x");
  return x / 2;
}
Result<int> Quarter(int x) {
  HR_ASSIGN_OR_RETURN(const int half, Half(x));
  HR_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

TEST(ResultTest, ErrorsTravelUnchanged) {
  EXPECT_EQ(*Quarter(8), 2);
  const auto failed = Quarter(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(failed.error().field, "/x");
}

TEST(SpscRingTest, KeepsOrderAcrossThreadsAndRefusesWhenFull) {
  SpscRing<int> ring(3);
  EXPECT_TRUE(ring.Push(1) && ring.Push(2) && ring.Push(3));
  EXPECT_FALSE(ring.Push(4));
  SpscRing<int> shared(64);
  constexpr int kItems = 20'000;
  std::thread producer([&] {
    for (int i = 0; i < kItems;) i += shared.Push(i) ? 1 : (std::this_thread::yield(), 0);
  });
  for (int expected = 0, item = 0; expected < kItems;) {
    if (!shared.Pop(item)) {
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(item, expected++);
  }
  producer.join();
}

TEST(DoorbellTest, ARingBeforeWaitIsNotLost) {
  FutexDoorbell bell;
  bell.Ring();
  bell.Wait(-1);  // would hang if the ring were lost
  std::atomic<int> turns{0};
  std::thread owner([&] {
    while (turns.load() < 1000) {
      bell.Wait(-1);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    turns.fetch_add(1);
    bell.Ring();
  }
  owner.join();
}

TEST(RandomTest, DrawsDependOnTheKeyAlone) {
  EXPECT_EQ(KeyedRandom(1, 2), KeyedRandom(1, 2));
  EXPECT_NE(KeyedRandom(1, 2), KeyedRandom(2, 1));
  double sum = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const float u = KeyedUniform(7, i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += static_cast<double>(u);
  }
  EXPECT_NEAR(sum / 100'000, 0.5, 0.005);
}

TEST(FileTest, TheLimitOfOpenFilesIsRaisedToWhatTheSystemAllows) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{std::min<rlim_t>(64, before.rlim_max), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(RaiseOpenFilesLimit(), before.rlim_max);
  rlimit after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_EQ(after.rlim_cur, before.rlim_max);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(FileTest, ReadsStayWithinTheFile) {
  const std::string path = std::filesystem::temp_directory_path() / ("headrace_base_" + std::to_string(getpid()));
  ASSERT_TRUE(WriteFileAtomically(path, "hello"));
  auto source = OpenFile(path);
  ASSERT_TRUE(source);
  std::byte bytes[8];
  EXPECT_TRUE((*source)->Read(1, std::span(bytes, 4)));
  EXPECT_FALSE((*source)->Read(1, std::span(bytes, 5)));
  EXPECT_FALSE((*source)->Read(UINT64_MAX, std::span(bytes, 2)));
  EXPECT_EQ(ReadWholeFile(path, 4).error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(*ReadWholeFile(path, 5), "hello");
  std::filesystem::remove(path);
  const auto missing = OpenFile(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message.find('/'), std::string::npos) << "a folder leaked: " << missing.error().message;
}

// A model named "x status=200" looked like another field.
TEST(LogTest, NoValueOfAnEventLooksLikeAnotherField) {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  auto logger = std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  logger->set_pattern("%v");
  spdlog::set_default_logger(logger);
  const std::string forged = "x status=200\n\"";
  LogEvent(spdlog::level::info, "request", {{"model", forged}, {"error", ""}, {"key", "-"}, {"status", 404}});
  spdlog::set_default_logger(before);
  EXPECT_EQ(log.str(), "request model=\"x status=200\\x0a\\x22\" error=- key=\"-\" status=404\n");
}

TEST(LogTest, JsonLinesHaveAMemberForEachField) {
  testing::internal::CaptureStderr();
  const auto before = spdlog::default_logger();
  StartLog("info", LogFormat::kJson);
  LOG_INFO("a \"quoted\" word\t\\");
  LogEvent(spdlog::level::info, "request", {{"model", "x\" status=200"}, {"status", 404}});
  StartLog("info", LogFormat::kText);
  spdlog::set_default_logger(before);
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_NE(lines.find(R"("level":"info","message":"a \"quoted\" word\u0009\\"})"), std::string::npos) << lines;
  EXPECT_NE(lines.find(R"("level":"info","message":"request","model":"x\\x22 status=200","status":404})"),
            std::string::npos)
      << lines;
}

TEST(LogTest, ControlCharactersCannotForgeALine) {
  EXPECT_EQ(EscapeForLog("a\nINFO b\x1b[0m"), "a\\x0aINFO b\\x1b[0m");
  EXPECT_EQ(EscapeForLog("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace headrace
