// Goal: whatever the bytes, what is written is valid JSON that reads back as the same text (U+FFFD where it was not
// UTF-8), and writing never throws.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"
#include "json/json.h"

namespace headrace {
namespace {

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

TEST(JsonWrite, Escapes) {
  EXPECT_EQ(Quoted(""), R"("")");
  EXPECT_EQ(Quoted("plain"), R"("plain")");
  EXPECT_EQ(Quoted("a\"b\\c\n\r\t\b\f\x01\x1f\x7f"), "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f\x7f\"");
  EXPECT_EQ(Quoted(std::string_view("\0", 1)), "\"\\u0000\"");
  EXPECT_EQ(Quoted("é 你好 🫠"), "\"é 你好 🫠\"");
}

TEST(JsonWrite, InvalidUtf8BecomesReplacement) {
  EXPECT_EQ(Quoted("a\xFFz"), "\"a\uFFFDz\"");
  EXPECT_EQ(Quoted("\xE4\xBD"), "\"\uFFFD\uFFFD\"");
  EXPECT_EQ(Quoted("\xED\xA0\x80"), "\"\uFFFD\uFFFD\uFFFD\"");
  EXPECT_EQ(Quoted("\xF4\x90\x80\x80"), "\"\uFFFD\uFFFD\uFFFD\uFFFD\"");
}

// Every byte at every position of the eight-byte scan.
TEST(JsonWrite, EveryByteAtEveryOffsetReadsBack) {
  for (int byte = 0; byte < 128; ++byte) {
    for (size_t at = 0; at < 20; ++at) {
      std::string text(20, 'x');
      text[at] = static_cast<char>(byte);
      auto parsed = ParseJson(Quoted(text), {});
      if (!parsed) FAIL() << byte << " at " << at << ": " << parsed.error().message;
      EXPECT_EQ(parsed->get<std::string>(), text);
    }
  }
}

TEST(JsonWrite, RandomBytesAreAlwaysValidJson) {
  Random random(7);
  for (int round = 0; round < 20'000; ++round) {
    std::string text;
    for (uint64_t n = random.Below(24); n > 0; --n) text += static_cast<char>(random.Next());
    EXPECT_TRUE(ParseJson(Quoted(text), {}).has_value());
    EXPECT_TRUE(ParseJson(DumpJson(Json(text)), {}).has_value());
  }
}

TEST(JsonWrite, Numbers) {
  std::string out;
  AppendJsonInteger(out, INT64_MIN);
  out += ' ';
  AppendJsonFloat(out, -0.1f);
  out += ' ';
  AppendJsonFloat(out, -9999.0f);
  EXPECT_EQ(out, "-9223372036854775808 -0.1 -9999");
}

TEST(JsonWrite, DumpNeverThrows) {
  EXPECT_EQ(DumpJson(Json("\xFF")), "\"\uFFFD\"");
  EXPECT_EQ(DumpJson(Json(std::nan(""))), "null");
  EXPECT_EQ(DumpJson(Json(std::numeric_limits<double>::infinity())), "null");
}

TEST(JsonWrite, CutUtf8KeepsCharactersWhole) {
  EXPECT_EQ(CutUtf8("a你b", 10), "a你b");
  EXPECT_EQ(CutUtf8("a你b", 4), "a你");
  EXPECT_EQ(CutUtf8("a你b", 3), "a");
  EXPECT_EQ(CutUtf8("你", 0), "");
}

}  // namespace
}  // namespace headrace
