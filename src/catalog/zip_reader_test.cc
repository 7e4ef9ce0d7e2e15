// Goal: members come out as they went in; every truncated or flipped archive is an error, never a crash or wrong bytes.
#include "catalog/zip_reader.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "catalog/test_folder.h"
#include "catalog/test_zip.h"

namespace headrace {
namespace {

Result<std::string> Unpack(const std::string& zip, const std::string& pattern) {
  const auto source = SourceFromMemory(std::as_bytes(std::span(zip)), "t.whl");
  HR_ASSIGN_OR_RETURN(const ZipReader reader, ZipReader::Open(*source));
  HR_ASSIGN_OR_RETURN(const ZipMember* member, reader.FindOne(pattern));
  std::string out;
  HR_RETURN_IF_ERROR(reader.Extract(*member, [&](std::span<const std::byte> bytes) -> Status {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  }));
  return out;
}

TEST(ZipReaderTest, ReadsStoredAndDeflatedMembers) {
  const std::string big = TestPattern(700'000);
  const std::string zip = TestZip({{"pkg/a.gguf", big, true}, {"pkg/b.part00", big, false}, {"pkg/empty", "", true}});
  EXPECT_EQ(Unpack(zip, "a.gguf"), big);
  EXPECT_EQ(Unpack(zip, "*.part00"), big);
  EXPECT_EQ(Unpack(zip, "pkg/empty"), "");
  EXPECT_FALSE(Unpack(zip, "*"));
  EXPECT_FALSE(Unpack(zip, "c"));
}

TEST(ZipReaderTest, TruncatedArchivesAreErrors) {
  const std::string zip = TestZip({{"a", TestPattern(3000), true}});
  for (size_t size = 0; size < zip.size(); ++size) EXPECT_FALSE(Unpack(zip.substr(0, size), "a")) << size;
}

TEST(ZipReaderTest, FlippedBitsNeverGiveWrongBytes) {
  const std::string good = TestPattern(3000);
  for (const bool deflate : {true, false}) {
    const std::string zip = TestZip({{"a", good, deflate}});
    for (size_t i = 0; i < zip.size() * 8; ++i) {
      std::string bad = zip;
      bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
      if (const auto out = Unpack(bad, "a")) EXPECT_EQ(*out, good) << i;
    }
  }
}

TEST(ZipReaderTest, RandomBytesBehindAnEndRecordAreErrors) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 120; ++i) bytes += static_cast<char>(random.Next());
    std::string tail = "PK\5\6" + std::string(4, '\0');
    AppendLe(tail, 1, 2);
    AppendLe(tail, 1, 2);
    AppendLe(tail, random.Below(200), 4);
    AppendLe(tail, random.Below(200), 4);
    EXPECT_FALSE(Unpack(bytes + tail + std::string(2, '\0'), "a"));
  }
}

TEST(ZipReaderTest, ALargeDirectoryIsRefusedUnread) {
  std::string tail = "PK\5\6" + std::string(4, '\0');
  AppendLe(tail, 1, 2);
  AppendLe(tail, 1, 2);
  AppendLe(tail, kZipDirectoryBytesMax + 1, 4);
  AppendLe(tail, 0, 4);
  const auto out = Unpack(tail + std::string(2, '\0'), "a");
  ASSERT_FALSE(out);
  EXPECT_EQ(out.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(out.error().field, "archive");
  EXPECT_EQ(out.error().message, "t.whl lists more than 16777216 bytes of members");
}

// A member that says 10 bytes and unpacks to 100 million must not fill the disk.
TEST(ZipReaderTest, ABombStopsAtTheLengthItSays) {
  std::string large;
  large.resize(50'000'000, 'x');
  std::string zip = TestZip({{"a", large, true}});
  const size_t length_at = zip.rfind("PK\1\2") + 24;
  for (int i = 0; i < 4; ++i) zip[length_at + static_cast<size_t>(i)] = i == 0 ? 10 : 0;
  const auto out = Unpack(zip, "a");
  ASSERT_FALSE(out);
  EXPECT_NE(out.error().message.find("more than it says"), std::string::npos);
}

}  // namespace
}  // namespace headrace
