// Goal: Open finds the files of a model wherever they are allowed to be and nowhere else, tells other formats by their
// content (O-42), keeps paths out of its messages (O-39), and names weights by hashes that change with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/limits.h"
#include "weights/test_files.h"

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Kind = ModelFile::TextKind;

Bytes OneTensor(std::string_view name, int seed = 1) {
  SafetensorsWriter writer;
  writer.AddTensor(std::string(name), DType::kF32, {2}, Pattern(8, seed));
  return writer.Build();
}

TEST(FolderTest, OneFileWithItsTexts) {
  const TempFolder folder;
  folder.Write("model.safetensors", OneTensor("a"));
  folder.Write("config.json", R"({"model_type":"llama"})");
  folder.Write("tokenizer.json", "{}");
  folder.Write("chat_template.jinja", "{{{{[[[ any text");
  const auto file = ModelFile::Open(folder.path());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->Text(Kind::kConfig), R"({"model_type":"llama"})");
  EXPECT_EQ((*file)->Text(Kind::kTokenizer), "{}");
  EXPECT_EQ((*file)->Text(Kind::kTokenizerConfig), "");
  EXPECT_EQ((*file)->Text(Kind::kChatTemplate), "{{{{[[[ any text");
  EXPECT_EQ((*file)->name(), "model.safetensors");
}

TEST(FolderTest, ShardsByTheirIndex) {
  const TempFolder folder;
  folder.Write("model-00001-of-00002.safetensors", OneTensor("a", 1));
  folder.Write("model-00002-of-00002.safetensors", OneTensor("b", 2));
  folder.Write("model.safetensors.index.json",
               R"({"metadata":{"total_size":16,"x":[{"weight_map":{"no":1}}]},"weight_map":{)"
               R"("a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  const auto file = ModelFile::Open(folder.path());
  ASSERT_TRUE(file) << file.error().message;
  Bytes read(8);
  ASSERT_TRUE((*file)->Read(*(*file)->Find("b"), 0, read));
  EXPECT_EQ(read, Pattern(8, 2));
  std::filesystem::remove(folder / "model-00002-of-00002.safetensors");
  EXPECT_THAT(ModelFile::Open(folder.path()).error().message, HasSubstr("model-00002-of-00002.safetensors"));
}

TEST(FolderTest, AnIndexThatTellsOtherwiseIsRefused) {
  struct Case {
    std::string_view index;
    std::string_view message;
  };
  const Case cases[] = {
      {R"({"weight_map":{"a":"../s.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":"/tmp/s.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":"sub/s.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":"sub\\s.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":".s.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":"s.safetensors\u0000.safetensors"}})", "only files of the same folder"},
      {R"({"weight_map":{"a":""}})", "only files of the same folder"},
      {R"({"weight_map":{"a":"pytorch_model.bin"}})", "no safetensors file: convert"},
      {R"({"weight_map":{"a":"pickle.safetensors"}})", "a Python pickle"},
      {R"({"weight_map":{"a":"absent.safetensors"}})", "absent.safetensors"},
      {R"({"weight_map":{"b":"s.safetensors"}})", "tensor b is not in s.safetensors"},
      {R"({"weight_map":{"a":"s.safetensors","a":"s.safetensors"}})", "tensor a appears twice"},
      {R"({"weight_map":{"a":1}})", "something other than a file name"},
      {R"({"weight_map":{"a":{}}})", "something other than a file name"},
      {R"({"weight_map":{"a":[]}})", "something other than a file name"},
      {R"({"weight_map":["a"]})", "no weight_map"},
      {R"({"weight_map":{}})", "no weight file"},
      {R"({"weight_map":{"a":"s.safetensors"},"weight_map":{}})", "two weight_maps"},
      {R"({"weight_map":{"a":"s.safetensors"})", "no valid JSON"},
      {"", "no valid JSON"},
  };
  const TempFolder folder;
  folder.Write("s.safetensors", OneTensor("a"));
  folder.Write("pytorch_model.bin", "\x80\x02}q");
  folder.Write("pickle.safetensors", "\x80\x02}q\x01X\x05");
  for (const Case& c : cases) {
    SCOPED_TRACE(c.index);
    folder.Write("model.safetensors.index.json", c.index);
    const auto file = ModelFile::Open(folder.path());
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, AllOf(HasSubstr(std::string(c.message)), Not(HasSubstr(folder.path()))));
  }
  folder.Write("model.safetensors.index.json", std::string(100'000, '['));
  EXPECT_EQ(ModelFile::Open(folder.path()).error().code, ErrorCode::kTooLarge);
}

TEST(FolderTest, ATensorOutsideTheIndexIsNamed) {
  const TempFolder folder;
  SafetensorsWriter two;
  two.AddTensor("a", DType::kU8, {1}, Pattern(1));
  two.AddTensor("extra", DType::kU8, {1}, Pattern(1));
  folder.Write("s.safetensors", two.Build());
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":"s.safetensors"}})");
  EXPECT_THAT(ModelFile::Open(folder.path()).error().message,
              HasSubstr("tensor extra is in a file, but not in the index"));
}

TEST(FolderTest, AFolderWithoutWeightsSaysWhatItHolds) {
  const TempFolder folder;
  EXPECT_EQ(ModelFile::Open(folder.path()).error().code, ErrorCode::kNotFound);
  folder.Write("pytorch_model.bin", "x");
  const auto pickled = ModelFile::Open(folder.path());
  EXPECT_EQ(pickled.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(pickled.error().message, AllOf(HasSubstr("pytorch_model.bin"), HasSubstr("convert")));
  std::filesystem::remove(folder / "pytorch_model.bin");
  folder.Write("m.gguf", "x");
  EXPECT_THAT(ModelFile::Open(folder.path()).error().message, HasSubstr("name that file"));
}

TEST(FolderTest, TextsAreBounded) {
  const TempFolder folder;
  folder.Write("model.safetensors", OneTensor("a"));
  folder.Write("config.json", std::string(kJsonDepthMax, '['));
  EXPECT_TRUE(ModelFile::Open(folder.path()));
  folder.Write("config.json", std::string(kJsonDepthMax + 1, '['));
  EXPECT_THAT(ModelFile::Open(folder.path()).error().message, HasSubstr("config.json: JSON nests deeper than 32"));
  folder.Write("config.json", std::string(kConfigTextBytesMax + 1, ' '));
  auto large = ModelFile::Open(folder.path());
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(large.error().message, "config.json has 1048577 bytes; at most 1048576 are read");
  folder.Write("config.json", "{}");
  folder.Write("tokenizer.json", "");
  std::filesystem::resize_file(folder / "tokenizer.json", kTokenizerTextBytesMax + 1);
  large = ModelFile::Open(folder.path());
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(large.error().message, "tokenizer.json has 41943041 bytes; at most 41943040 are read");
}

TEST(FolderTest, IndexesAreBounded) {
  const TempFolder folder;
  const std::string index = "model.safetensors.index.json";
  folder.Write("s.safetensors", OneTensor("a"));
  const auto refused = [&](const std::string& text) {
    folder.Write(index, text);
    return ModelFile::Open(folder.path()).error();
  };
  std::string many = R"({"weight_map":{)";
  for (uint64_t i = 0; i <= kFilesMax; ++i) {
    const std::string number = std::to_string(i);
    many.append(i > 0 ? ",\"t" : "\"t").append(number).append("\":\"s").append(number).append(".safetensors\"");
  }
  const Error files = refused(many + "}}");
  EXPECT_EQ(files.code, ErrorCode::kTooLarge);
  EXPECT_EQ(files.message, index + " names more than 512 files");
  const Error name = refused(R"({"weight_map":{"a":")" + std::string(244, 'n') + R"(.safetensors"}})");
  EXPECT_EQ(name.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(name.message, AllOf(HasSubstr(index), HasSubstr("by names of 1 to 255 bytes")));
  const Error token = refused("{\"" + std::string(kJsonTokenBytesMax + 1, 'k') + "\":1}");
  EXPECT_EQ(token.code, ErrorCode::kTooLarge);
  EXPECT_THAT(token.message, HasSubstr(index + ": JSON has a token of more bytes than 1048576"));
  folder.Write(index, "");
  std::filesystem::resize_file(folder / index, kIndexBytesMax + 1);
  const auto large = ModelFile::Open(folder.path());
  EXPECT_EQ(large.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(large.error().message, index + " has 16777217 bytes; at most 16777216 are read");
}

TEST(OpenTest, AModelOfTooManyPartsIsNamed) {
  const TempFolder folder;
  for (const char* name : {"m-00001-of-00513.gguf", "m-00001-of-00000.gguf"}) {
    folder.Write(name, "GGUF");
    const auto file = ModelFile::Open(folder / name);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ErrorCode::kTooLarge);
    EXPECT_THAT(file.error().message, AllOf(HasSubstr("m: a model of "), HasSubstr("parts; 1 to 512 are read")));
  }
}

TEST(SniffTest, OtherFormatsAreToldByTheirContentWhateverTheirName) {
  struct Case {
    std::string content;
    std::string_view message;
  };
  using namespace std::string_literals;
  const Case cases[] = {
      {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9"s, "a Python pickle, which can run code"},
      {"\x80\x04\x95\x1e\0\0\0\0\0\0\0{"s, "a Python pickle, which can run code"},
      {"\x80\x05."s, "a Python pickle, which can run code"},
      {"(dp0\nS'a'\n"s, "a Python pickle"},
      {"cos\nsystem\n(S'true'\ntR."s, "a Python pickle"},
      {"PK\x03\x04\x14\0"s, "a ZIP archive"},
      {"\x1f\x8b\x08"s, "gzip"},
      {"\x89HDF\r\n"s, "HDF5"},
      {"tjgg\1\0\0\0"s, "from before GGUF"},
      {"version https://git-lfs.github.com/spec/v1\n"s, "a Git LFS pointer"},
      {"<!DOCTYPE html><html>"s, "a web page"},
      {std::string(257, 'x') + "ustar\0"s + std::string(300, 'x'), "a tar archive"},
      {""s, "is empty"},
  };
  for (const Case& c : cases) {
    for (const std::string name : {"m.gguf", "m.safetensors", "m.bin", "m"}) {
      SCOPED_TRACE(name + ": " + std::string(c.message));
      const Bytes bytes = ToBytes(c.content);
      const auto file = LoadBytes(bytes, name);
      ASSERT_FALSE(file);
      EXPECT_THAT(file.error().message, HasSubstr(std::string(c.message)));
    }
  }
  const Bytes unknown = ToBytes("hello\nworld");
  EXPECT_THAT(LoadBytes(unknown, "m.gguf").error().message, HasSubstr("neither GGUF nor safetensors"));
}

TEST(SniffTest, ASafetensorsHeaderLengthThatLooksLikeAPickleIsNone) {
  std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  header.resize(0x280, ' ');  // the file begins with 80 02
  const Bytes bytes = SafetensorsOf(header, 1);
  EXPECT_TRUE(LoadBytes(bytes, "model")) << LoadBytes(bytes, "model").error().message;
}

TEST(OpenTest, PathsStayOutOfMessages) {
  const TempFolder folder;
  folder.Write("m.gguf", "GGUF");
  for (const std::string& path : {folder / "m.gguf", folder / "absent.gguf", folder / "sub/absent", folder.path()}) {
    const auto file = ModelFile::Open(path);
    ASSERT_FALSE(file) << path;
    EXPECT_THAT(file.error().message, Not(HasSubstr(folder.path())));
  }
  EXPECT_FALSE(ModelFile::Open(""));
  EXPECT_FALSE(ModelFile::Open(std::string("a\0b", 3)));
  EXPECT_FALSE(ModelFile::FromSource({}));
}

TEST(OpenTest, MixedFormatsAreRefused) {
  const Bytes gguf = *TinyGguf().Build();
  const Bytes safetensors = TinySafetensors().Build();
  std::vector<std::unique_ptr<ByteSource>> sources;
  sources.push_back(SourceFromMemory(gguf, "a.gguf"));
  sources.push_back(SourceFromMemory(safetensors, "b.safetensors"));
  EXPECT_THAT(ModelFile::FromSource(std::move(sources)).error().message, HasSubstr("different formats"));
}

TEST(OpenTest, AFileThatShrinksWhileOpenIsAnErrorOfItsTensor) {
  const TempFolder folder;
  folder.Write("m.gguf", *TinyGguf().Build());
  const auto file = ModelFile::Open(folder / "m.gguf");
  ASSERT_TRUE(file);
  std::filesystem::resize_file(folder / "m.gguf", 100);
  Bytes read(20);
  const Status status = (*file)->Read(*(*file)->Find("output_norm.weight"), 0, read);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("tensor output_norm.weight: m.gguf became shorter"));
}

TEST(HashTest, BothHashesFollowWeightsHeaderAndTexts) {
  const auto hashes = [](const Bytes& weights, std::string_view config) {
    const TempFolder folder;
    folder.Write("model.safetensors", weights);
    folder.Write("config.json", config);
    const auto file = ModelFile::Open(folder.path());
    return std::pair(*(*file)->ContentHash(), *(*file)->FullHash());
  };
  const auto base = hashes(OneTensor("a", 1), "{}");
  EXPECT_EQ(base.first.size(), 64u);
  EXPECT_NE(base.first, base.second);
  EXPECT_EQ(hashes(OneTensor("a", 1), "{}"), base);
  for (const auto& [weights, config] :
       {std::pair(OneTensor("a", 2), "{}"), std::pair(OneTensor("b", 1), "{}"), std::pair(OneTensor("a", 1), "{ }")}) {
    const auto other = hashes(weights, config);
    EXPECT_NE(other.first, base.first);
    EXPECT_NE(other.second, base.second);
  }
}

}  // namespace
}  // namespace headrace
