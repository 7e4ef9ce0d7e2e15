// Goal: what GgufWriter stores, ModelFile reads back: every kind of metadata with its type, shapes outermost first,
// bytes at their place; versions 2 and 3, numbered parts in any order; files of another writer and a real model are
// read right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "weights/test_files.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(GgufTest, MetadataOfEveryKindComesBackWithItsType) {
  GgufWriter writer;
  writer.Add("u8", MetaValue::Scalar(MetaType::kU8, uint64_t{200}));
  writer.Add("i16", MetaValue::Scalar(MetaType::kI16, int64_t{-3}));
  writer.Add("u64", MetaValue::U64(UINT64_MAX));
  writer.Add("i32", MetaValue::I32(-7));
  writer.Add("f32", MetaValue::F32(0.5f));
  writer.Add("f64", MetaValue::Scalar(MetaType::kF64, 0.1));
  writer.Add("bool", MetaValue::Bool(true));
  writer.Add("string", MetaValue::String("h\xC3\xA9"));
  writer.Add("strings", MetaValue::Strings({"", "x"}));
  writer.Add("floats", MetaValue::Floats({1.5f, -2.0f}));
  writer.Add("ints", MetaValue::I32s({1, -1}));
  writer.Add("u8s", MetaValue::Array(MetaType::kU8, std::vector<int64_t>{0, 255}));
  writer.Add("bools", MetaValue::Array(MetaType::kBool, std::vector<int64_t>{0, 1}));
  writer.Add("f64s", MetaValue::Array(MetaType::kF64, std::vector<float>{0.25f}));
  writer.Add("none", MetaValue::Strings({}));
  const auto bytes = writer.Build();
  ASSERT_TRUE(bytes);
  const auto file = LoadGguf(*bytes);
  ASSERT_TRUE(file) << file.error().message;
  const ModelFile& m = **file;
  EXPECT_EQ(m.MetaInt("u8"), 200);
  EXPECT_EQ(m.Meta("u8")->type(), MetaType::kU8);
  EXPECT_EQ(m.MetaInt("i16"), -3);
  EXPECT_EQ(m.MetaInt("u64"), std::nullopt);
  EXPECT_EQ(m.MetaFloat("u64"), 18446744073709551616.0);
  EXPECT_EQ(m.MetaFloat("i32"), -7.0);
  EXPECT_EQ(m.MetaFloat("f32"), 0.5);
  EXPECT_EQ(m.MetaFloat("f64"), 0.1);
  EXPECT_EQ(m.MetaBool("bool"), true);
  EXPECT_EQ(m.MetaString("string"), "h\xC3\xA9");
  EXPECT_EQ(*m.MetaStrings("strings"), (std::vector<std::string>{"", "x"}));
  EXPECT_EQ(*m.MetaFloats("floats"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(*m.MetaInts("ints"), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(*m.MetaInts("u8s"), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(m.Meta("u8s")->element_type(), MetaType::kU8);
  EXPECT_EQ(*m.MetaInts("bools"), (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(*m.MetaFloats("f64s"), (std::vector<float>{0.25f}));
  EXPECT_TRUE(m.MetaStrings("none")->empty());
  EXPECT_EQ(m.MetaInt("absent"), std::nullopt);
  EXPECT_EQ(m.MetaString("u8"), std::nullopt);
  EXPECT_EQ(m.MetaStrings("ints"), nullptr);
  EXPECT_EQ(m.metadata().front().key, "u8");
  EXPECT_EQ(m.format(), ModelFile::Format::kGguf);
}

TEST(GgufTest, TensorsComeBackWithShapeTypeAndBytes) {
  const auto bytes = TinyGguf().Build();
  const auto file = LoadGguf(*bytes);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ((*file)->tensors().size(), 2u);
  const TensorInfo* embedding = (*file)->Find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{3, 64}));
  EXPECT_EQ(embedding->rows(), 3);
  EXPECT_EQ(embedding->columns(), 64);
  EXPECT_EQ(embedding->dtype, DType::kQ4_0);
  EXPECT_EQ(embedding->bytes, 108u);
  EXPECT_EQ(embedding->file_offset % 32, 0u);
  EXPECT_EQ((*file)->Find("token_embd"), nullptr);
  EXPECT_EQ((*file)->Find("zzz"), nullptr);
  Bytes read(108);
  ASSERT_TRUE((*file)->Read(*embedding, 0, read));
  EXPECT_EQ(read, Pattern(108));
  Bytes part(8);
  ASSERT_TRUE((*file)->Read(*embedding, 100, part));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), read.begin() + 100));
  EXPECT_EQ((*file)->Read(*embedding, 101, part).error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE((*file)->Read(*embedding, UINT64_MAX, part));
  EXPECT_TRUE((*file)->Read(*embedding, 108, {}));
  EXPECT_EQ((*file)->total_bytes(), bytes->size());
}

TEST(GgufTest, OtherAlignmentsAndVersion2AreRead) {
  for (const uint64_t alignment : {1u, 8u, 64u, 4096u}) {
    GgufWriter writer(alignment);
    writer.AddTensor("a", DType::kF32, {1}, Pattern(4));
    writer.AddTensor("b", DType::kF32, {2}, Pattern(8));
    auto bytes = *writer.Build();
    bytes[4] = std::byte{2};
    const auto file = LoadGguf(bytes);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->Find("b")->file_offset % alignment, 0u);
    Bytes read(8);
    ASSERT_TRUE((*file)->Read(*(*file)->Find("b"), 0, read));
    EXPECT_EQ(read, Pattern(8));
  }
}

TEST(GgufTest, TypesThatAreNotComputedAreKeptUntilTheyAreUsed) {
  GgufWriter writer;
  writer.AddTensor("a", DType::kF16, {2}, Pattern(4));
  writer.AddTensor("b", DType::kIQ4_XS, {1, 256}, Pattern(136));
  const auto bytes = writer.Build();
  const auto file = LoadGguf(*bytes);
  ASSERT_TRUE(file);
  EXPECT_TRUE(ModelFile::CheckComputable(*(*file)->Find("a")));
  const Status refused = (*file)->CheckComputable();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(refused.error().field, "b");
  EXPECT_THAT(refused.error().message, HasSubstr("tensor b has type IQ4_XS"));
  EXPECT_THAT(refused.error().message, HasSubstr("Q4_K"));
}

Bytes Part(int number, int count, std::string_view tensor, int tensors_of_all = 3) {
  GgufWriter writer;
  if (number == 0) writer.Add("general.architecture", MetaValue::String("llama"));
  writer.Add("split.no", MetaValue::Scalar(MetaType::kU16, static_cast<uint64_t>(number)));
  writer.Add("split.count", MetaValue::Scalar(MetaType::kU16, static_cast<uint64_t>(count)));
  writer.Add("split.tensors.count", MetaValue::I32(tensors_of_all));
  writer.AddTensor(std::string(tensor), DType::kF32, {4}, Pattern(16, number));
  return *writer.Build();
}

TEST(GgufPartsTest, AnyPartFindsTheOthers) {
  const TempFolder folder;
  folder.Write("m-00001-of-00003.gguf", Part(0, 3, "a"));
  folder.Write("m-00002-of-00003.gguf", Part(1, 3, "b"));
  folder.Write("m-00003-of-00003.gguf", Part(2, 3, "c"));
  for (const std::string_view given : {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const auto file = ModelFile::Open(folder / given);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->tensors().size(), 3u);
    EXPECT_EQ((*file)->MetaString("general.architecture"), "llama");
    EXPECT_EQ((*file)->Find("c")->file_index, 2u);
    Bytes read(16);
    ASSERT_TRUE((*file)->Read(*(*file)->Find("c"), 0, read));
    EXPECT_EQ(read, Pattern(16, 2));
  }
}

TEST(GgufPartsTest, OrderDoesNotMatterButEveryPartMustBeThereOnce) {
  const Bytes a = Part(0, 2, "a", 2);
  const Bytes b = Part(1, 2, "b", 2);
  const Bytes twin = Part(1, 2, "a", 2);
  const Bytes beyond = Part(2, 2, "b", 2);
  const auto load = [](std::vector<const Bytes*> parts) {
    std::vector<std::unique_ptr<ByteSource>> sources;
    for (const Bytes* part : parts) {
      sources.push_back(SourceFromMemory(*part, "p" + std::to_string(sources.size()) + ".gguf"));
    }
    return ModelFile::FromSource(std::move(sources));
  };
  const auto swapped = load({&b, &a});
  ASSERT_TRUE(swapped) << swapped.error().message;
  EXPECT_EQ((*swapped)->name(), "p1.gguf");
  EXPECT_THAT(load({&a}).error().message, HasSubstr("one of 2 parts, but 1 were found"));
  EXPECT_THAT(load({&a, &a}).error().message, HasSubstr("are the same part"));
  EXPECT_THAT(load({&a, &twin}).error().message, HasSubstr("tensor a appears twice"));
  EXPECT_FALSE(load({&a, &beyond}));
  const Bytes few = Part(0, 1, "a", 2);
  EXPECT_THAT(load({&few}).error().message, HasSubstr("has 2 tensors, but its 1 parts hold 1"));
}

TEST(GgufPartsTest, AMissingPartIsNamed) {
  const TempFolder folder;
  folder.Write("m-00001-of-00002.gguf", Part(0, 2, "a"));
  const auto file = ModelFile::Open(folder / "m-00001-of-00002.gguf");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("m-00002-of-00002.gguf"));
}

TEST(GgufTest, FilesOfAnotherWriterAreRead) {  // made by corpus/make_corpus.py with the Python package gguf
  const auto file = ModelFile::Open(HEADRACE_SOURCE_DIR "/src/weights/corpus/gguf/kinds.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->MetaString("general.architecture"), "llama");
  EXPECT_EQ((*file)->MetaInt("llama.context_length"), 128);
  EXPECT_EQ((*file)->MetaStrings("tokenizer.ggml.tokens")->at(2), "\xC3\xA9");
  EXPECT_EQ((*file)->MetaFloats("tokenizer.ggml.scores")->at(1), -1.5f);
  const TensorInfo* norm = (*file)->Find("output_norm.weight");
  ASSERT_NE(norm, nullptr);
  float values[4];
  ASSERT_TRUE((*file)->Read(*norm, 0, std::as_writable_bytes(std::span(values))));
  EXPECT_THAT(values, ::testing::ElementsAre(1.0f, 2.0f, 3.0f, 4.0f));
  EXPECT_EQ((*file)->Find("blk.0.ffn_up.weight")->shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ((*file)->Find("blk.0.ffn_up.weight")->dtype, DType::kQ8_0);
}

TEST(GgufTest, ARealModelIsRead) {
  const char* path = std::getenv("HEADRACE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "HEADRACE_TEST_MODEL does not name SmolLM2-135M-Instruct.Q4_1.gguf";
  const auto file = ModelFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  std::map<DType, int> counts;
  for (const TensorInfo& tensor : (*file)->tensors()) ++counts[tensor.dtype];
  EXPECT_EQ((*file)->tensors().size(), 272u);
  EXPECT_EQ(counts, (std::map<DType, int>{{DType::kQ4_1, 210}, {DType::kF32, 61}, {DType::kQ8_0, 1}}));
  EXPECT_TRUE((*file)->CheckComputable());
  EXPECT_EQ((*file)->MetaStrings("tokenizer.ggml.tokens")->size(), 49152u);
  EXPECT_EQ((*file)->Find("token_embd.weight")->shape, (std::vector<int64_t>{49152, 576}));
  EXPECT_EQ((*file)->total_bytes(), 98'362'432u);
  EXPECT_EQ((*file)->ContentHash()->size(), 64u);
}

}  // namespace
}  // namespace headrace
