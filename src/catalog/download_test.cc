// Goal: a download ends with exactly the published bytes or with one clear error; it resumes by range after a cut and
// after a restart, notices a changed, longer, shorter or forged file, a full disk and a person who stops it.
#include "catalog/download.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>

#include "catalog/sha256.h"
#include "catalog/test_file_server.h"
#include "catalog/test_folder.h"

namespace headrace {
namespace {

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() : bytes_(TestPattern(3'000'000)), ports_(SystemPullPorts([this] { return cancelled_; })) {
    ports_.pause = [](TimeNs) {};
    server_.Put("/m.gguf", bytes_);
  }
  Result<std::string> Run(const std::string& sha256 = "", uint64_t bytes = 0) {
    return Download({.url = server_.Url("/m.gguf"), .target = folder_.Path("m.gguf"), .bytes = bytes, .sha256 = sha256},
                    ports_, progress_);
  }

  const std::string bytes_;
  TestFolder folder_;
  TestFileServer server_;
  bool cancelled_ = false;
  PullPorts ports_;
  SilentProgress progress_;
};

TEST_F(DownloadTest, FetchesAndVerifies) {
  const auto hash = Run(Sha256Hex(bytes_), bytes_.size());
  ASSERT_TRUE(hash) << hash.error().message;
  EXPECT_EQ(*hash, Sha256Hex(bytes_));
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
  EXPECT_FALSE(folder_.Has("m.gguf.part"));
  EXPECT_FALSE(folder_.Has("m.gguf.part.source"));
}

TEST_F(DownloadTest, ResumesByRangeAfterEachCut) {
  server_.CutAfter({1'000'000, 500'000});
  ASSERT_TRUE(Run());
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
  EXPECT_EQ(server_.Ranges(), (std::vector<std::string>{"", "bytes=1000000-", "bytes=1500000-"}));
}

TEST_F(DownloadTest, GivesUpWhenNothingComesAndResumesInTheNextRun) {
  server_.CutAfter({1'000'000, 0, 0, 0, 0});
  const auto failed = Run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().field, "cut");
  EXPECT_NE(failed.error().message.find("given up after 4 attempts"), std::string::npos) << failed.error().message;
  EXPECT_NE(failed.error().message.find("the same command resumes"), std::string::npos);
  EXPECT_EQ(folder_.Read("m.gguf.part"), bytes_.substr(0, 1'000'000));
  EXPECT_FALSE(folder_.Has("m.gguf"));
  ASSERT_TRUE(Run());
  EXPECT_EQ(server_.Ranges().back(), "bytes=1000000-");
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
}

TEST_F(DownloadTest, AFileThatChangedBetweenRunsStartsOver) {
  server_.CutAfter({1'000'000, 0, 0, 0, 0});
  ASSERT_FALSE(Run());
  const std::string other = TestPattern(2'000'000) + "new";
  server_.Put("/m.gguf", other, "\"v2\"");
  ASSERT_TRUE(Run());
  EXPECT_EQ(folder_.Read("m.gguf"), other);
}

TEST_F(DownloadTest, AServerWithoutRangesStartsOver) {
  server_.IgnoreRanges();
  server_.CutAfter({1'000'000});
  ASSERT_TRUE(Run());
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
}

TEST_F(DownloadTest, BytesOfUnknownOriginAreNotTrusted) {
  folder_.Write("m.gguf.part", std::string(500'000, 'x'));
  ASSERT_TRUE(Run());
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
  EXPECT_EQ(server_.Ranges(), std::vector<std::string>{""});
}

TEST_F(DownloadTest, AWrongHashKeepsNothing) {
  const auto failed = Run(std::string(64, 'a'));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCorruptData);
  EXPECT_EQ(failed.error().field, "sha256");
  EXPECT_FALSE(folder_.Has("m.gguf"));
  EXPECT_FALSE(folder_.Has("m.gguf.part"));
}

TEST_F(DownloadTest, AnotherLengthThanExpectedIsRefusedBeforeTheBody) {
  const auto failed = Run("", 2'999'999);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().field, "size");
  EXPECT_FALSE(folder_.Has("m.gguf.part"));
}

TEST_F(DownloadTest, SpaceIsCheckedBeforeTheFirstByte) {
  ports_.free_bytes = [](const std::string&) -> Result<uint64_t> { return 65'000'000; };
  const auto failed = Run();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().field, "disk");
  EXPECT_NE(failed.error().message.find("HEADRACE_MODELS_DIR"), std::string::npos);
  EXPECT_FALSE(folder_.Has("m.gguf.part"));
}

TEST_F(DownloadTest, ADiskThatFillsUpKeepsWhatFitted) {
  std::filesystem::create_directory(folder_.Path("small"));
  if (mount("tmpfs", folder_.Path("small").c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "needs root to mount a small disk";
  ports_.free_bytes = [](const std::string&) -> Result<uint64_t> { return uint64_t{1} << 40; };
  const auto failed =
      Download({.url = server_.Url("/m.gguf"), .target = folder_.Path("small/m.gguf")}, ports_, progress_);
  const bool kept = folder_.Has("small/m.gguf.part");
  umount(folder_.Path("small").c_str());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().field, "disk");
  EXPECT_NE(failed.error().message.find("disk full"), std::string::npos);
  EXPECT_TRUE(kept);
}

TEST_F(DownloadTest, StoppedItKeepsThePartAndResumes) {
  PullPorts stopping = ports_;
  stopping.fetch = [&](const HttpFetchRequest& request, const HttpBodySink& on_body, const HttpHeadSink& on_head) {
    return ports_.fetch(
        request,
        [&, on_body](std::span<const std::byte> bytes) {
          const Status status = on_body(bytes);
          cancelled_ = true;
          return status;
        },
        on_head);
  };
  const auto failed = Download({.url = server_.Url("/m.gguf"), .target = folder_.Path("m.gguf")}, stopping, progress_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kCancelled);
  EXPECT_GT(folder_.Read("m.gguf.part").size(), 0u);
  cancelled_ = false;
  ASSERT_TRUE(Run());
  EXPECT_EQ(folder_.Read("m.gguf"), bytes_);
}

TEST_F(DownloadTest, StoppedWhileTheServerIsSilentItReturnsSoon) {
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(silent, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&at), size), 0);
  listen(silent, 1);
  getsockname(silent, reinterpret_cast<sockaddr*>(&at), &size);
  cancelled_ = true;
  const auto result = ports_.fetch({.url = "http://127.0.0.1:" + std::to_string(ntohs(at.sin_port)) + "/"}, {}, {});
  close(silent);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

TEST_F(DownloadTest, TwoWritersAreOneTooMany) {
  const int fd = open(folder_.Path("m.gguf.part").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const auto failed = Run();
  close(fd);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kConflict);
}

TEST_F(DownloadTest, ALinkInPlaceOfThePartIsRefused) {
  folder_.Write("elsewhere", "keep");
  std::filesystem::create_symlink(folder_.Path("elsewhere"), folder_.Path("m.gguf.part"));
  EXPECT_FALSE(Run());
  EXPECT_EQ(folder_.Read("elsewhere"), "keep");
}

TEST_F(DownloadTest, StatusCodesBecomeErrors) {
  for (const auto& [status, code] : {std::pair{404, ErrorCode::kNotFound},
                                     {401, ErrorCode::kPermissionDenied},
                                     {503, ErrorCode::kUnavailable},
                                     {418, ErrorCode::kIo}}) {
    server_.AnswerWith(status);
    const auto failed = Run();
    ASSERT_FALSE(failed) << status;
    EXPECT_EQ(failed.error().code, code) << status;
  }
  EXPECT_EQ(server_.Ranges().size(), 3u + kFruitlessAttemptsMax) << "only 5xx is tried again";
}

}  // namespace
}  // namespace headrace
