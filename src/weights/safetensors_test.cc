// Goal: safetensors files come back as written, and each way in which a header can lie (O-35) is refused before
// anything of the claimed size is allocated, with a message that names the fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/limits.h"
#include "weights/test_files.h"

namespace headrace {
namespace {

using ::testing::HasSubstr;

TEST(SafetensorsTest, TensorsAndMetadataComeBack) {
  const Bytes bytes = TinySafetensors().Build();
  const auto file = LoadSafetensors(bytes);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->format(), ModelFile::Format::kSafetensors);
  EXPECT_EQ((*file)->MetaString("format"), "pt");
  const TensorInfo* head = (*file)->Find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->dtype, DType::kBF16);
  EXPECT_EQ(head->rows(), 2);
  EXPECT_EQ(head->columns(), 3);
  Bytes read(12);
  ASSERT_TRUE((*file)->Read(*head, 0, read));
  EXPECT_EQ(read, Pattern(12, 3));
  const TensorInfo* scalar = (*file)->Find("scale");
  ASSERT_NE(scalar, nullptr);
  EXPECT_TRUE(scalar->shape.empty());
  EXPECT_EQ(scalar->rows() * scalar->columns(), 1);
}

TEST(SafetensorsTest, EmptyTensorsAndEmptyFilesAreValid) {
  const Bytes none = SafetensorsOf("{}", 0);
  EXPECT_TRUE(LoadSafetensors(none));
  const Bytes empty = SafetensorsOf(R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
                                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
                                    2);
  const auto file = LoadSafetensors(empty);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->Find("a")->rows(), 0);
}

TEST(SafetensorsTest, PlainTypesAreKeptUntilTheyAreUsed) {
  const Bytes bytes = SafetensorsOf(R"({"ids":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", 8);
  const auto file = LoadSafetensors(bytes);
  ASSERT_TRUE(file);
  EXPECT_THAT((*file)->CheckComputable().error().message, HasSubstr("tensor ids has type I64"));
}

struct BadHeader {
  std::string_view header;
  size_t data_bytes;
  std::string_view message;
};

constexpr BadHeader kBadHeaders[] = {
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "[4, 0] end before they begin"},
    {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
     "tensor a needs bytes up to 8 of the data, but the file has only 4"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551612,18446744073709551615]}})", 4,
     "need 4 bytes"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[18446744073709551611,18446744073709551615]}})", 4,
     "the file has only 4"},
    {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "data_offsets is missing"},
    {R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape is missing"},
    {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "dtype is missing"},
    {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,4]}})", 4, "need 12 bytes, but data_offsets span 4"},
    {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4, "need 2 bytes"},
    {R"({"a":{"dtype":"F32","shape":[4611686018427387905,4],"data_offsets":[0,4]}})", 4, "more than 2^63 bytes"},
    {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative"},
    {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "fraction"},
    {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4, "more than 8 dimensions"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4, "unexpected a number"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "must be two numbers"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[]}})", 4, "must be two numbers"},
    {R"({"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", 4, "tensor a: unknown type F3"},
    {R"({"a":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "unexpected a number"},
    {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "unexpected a string"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":null}})", 4, "unexpected null"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
     8, "tensor a appears twice"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
     8, "overlap"},
    {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "have 4 bytes, but the data section 8"},
    {R"({"__metadata__":{"a":"1","a":"2"}})", 0, "metadata key a appears twice"},
    {R"({"__metadata__":{"a":1}})", 0, "unexpected a number"},
    {R"({"__metadata__":{"a":{}}})", 0, "unexpected an object"},
    {R"({"a":4})", 0, "unexpected a number"},
    {R"({"a":[]})", 0, "unexpected an array"},
    {R"({"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "a tensor name of 0 bytes"},
    {R"({"a":{"dtype":"F32","shape":[[[1]]],"data_offsets":[0,4]}})", 4, "nests deeper"},
    {R"({"a":{"dtype":"F32")", 0, "no valid JSON"},
    {R"({} x)", 0, "no valid JSON"},
    {"{\"\xFF\":1}", 0, "no valid JSON"},
};

TEST(SafetensorsHostileTest, EveryLieInAHeaderIsRefusedByName) {
  for (const BadHeader& bad : kBadHeaders) {
    SCOPED_TRACE(bad.header);
    const Bytes bytes = SafetensorsOf(bad.header, bad.data_bytes);
    const auto file = LoadSafetensors(bytes);
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr(std::string(bad.message)));
    EXPECT_THAT(file.error().message, HasSubstr("m.safetensors"));
  }
}

TEST(SafetensorsHostileTest, HeaderLengthsAreCheckedBeforeTheyAreUsed) {
  const auto with_length = [](uint64_t length, size_t bytes) {
    return Raw().U64(length).Text("{").Zeros(bytes).bytes();
  };
  struct Case {
    Bytes bytes;
    std::string_view message;
  };
  const Case cases[] = {
      {Raw().Text("x").bytes(), "needs at least 10 bytes, but the file has only 1"},
      {Raw().U64(0).bytes(), "a header of 0 bytes"},
      {with_length(0, 100), "a header of 0 bytes"},
      {with_length(1, 100), "a header of 1 bytes"},
      {with_length((1ull << 63) - 1, 100), "at most 16777216"},
      {with_length(UINT64_MAX, 100), "at most 16777216"},
      {with_length(102, 100), "needs bytes up to 110, but the file has only 109"},
      {with_length(200 * kMiB, 100), "at most 16777216"},
      {Raw().U64(4).Text("[{}]").bytes(), "does not begin with a brace"},
  };
  for (const Case& c : cases) {
    const auto file = LoadSafetensors(c.bytes);
    ASSERT_FALSE(file) << c.message;
    EXPECT_THAT(file.error().message, HasSubstr(std::string(c.message)));
  }
}

TEST(SafetensorsHostileTest, DeepJsonIsRefusedBeforeItIsParsed) {
  std::string deep = R"({"a":)";
  deep.append(100'000, '[');
  const Bytes bytes = SafetensorsOf(deep, 0);
  EXPECT_EQ(LoadSafetensors(bytes).error().code, ErrorCode::kTooLarge);
  // Brackets inside strings do not count.
  const Bytes quoted = SafetensorsOf(R"({"__metadata__":{"a":"[[[[[[[[[[[\"[[[["}})", 0);
  EXPECT_TRUE(LoadSafetensors(quoted));
}

TEST(SafetensorsHostileTest, MaximaHold) {
  std::string many = R"({"__metadata__":{)";
  for (uint64_t i = 0; i <= kMetaKeysMax; ++i) many += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":\"\"";
  const Bytes keys = SafetensorsOf(many + "}}", 0);
  EXPECT_THAT(LoadSafetensors(keys).error().message, HasSubstr("more than 4096 keys"));
  const Bytes long_key =
      SafetensorsOf(R"({"__metadata__":{")" + std::string(kMetaKeyBytesMax + 1, 'k') + R"(":""}})", 0);
  EXPECT_EQ(LoadSafetensors(long_key).error().code, ErrorCode::kTooLarge);
  const auto named = [](size_t bytes) {
    return SafetensorsOf("{\"" + std::string(bytes, 'n') + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  };
  const Bytes longest = named(kTensorNameBytesMax);
  EXPECT_TRUE(LoadSafetensors(longest));
  const Bytes longer = named(kTensorNameBytesMax + 1);
  EXPECT_THAT(LoadSafetensors(longer).error().message, HasSubstr("a tensor name of 257 bytes"));
  const auto numbered = [](uint64_t count) {
    std::string header = "{";
    for (uint64_t i = 0; i < count; ++i) {
      header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    }
    return SafetensorsOf(header + "}", 0);
  };
  const Bytes most = numbered(kTensorsMax);
  EXPECT_TRUE(LoadSafetensors(most));
  const Bytes more = numbered(kTensorsMax + 1);
  EXPECT_THAT(LoadSafetensors(more).error().message, HasSubstr("more than 65536 tensors"));
}

}  // namespace
}  // namespace headrace
