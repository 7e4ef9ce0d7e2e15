// Goal: bytes from outside become a tree or an error that names the place; no depth, size, number or encoding gets
// further, and order of keys survives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "json/json.h"

namespace headrace {
namespace {

using testing::HasSubstr;
using testing::Not;

Error ErrorOf(std::string_view text, JsonLimits limits = {}) {
  auto parsed = ParseJson(text, limits);
  EXPECT_FALSE(parsed.has_value()) << text.substr(0, 80);
  return parsed ? Error{} : parsed.error();
}

TEST(JsonParse, AcceptsEveryKindOfValue) {
  const std::string text =
      R"({"b":[1,-2,18446744073709551615,0.5,1e3,true,false,null,"x"],"a":{},"é":"\ud83d\ude00\u00e9"})";
  auto parsed = ParseJson(text, {});
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(DumpJson(*parsed), R"({"b":[1,-2,18446744073709551615,0.5,1000.0,true,false,null,"x"],"a":{},"é":"😀é"})");
}

TEST(JsonParse, KeepsTheOrderOfKeysAndDeepValues) {
  std::string text = "{";
  for (int i = 200; i > 0; --i) text += "\"k" + std::to_string(i) + "\":[" + std::to_string(i) + "],";
  text += "\"last\":{\"x\":{\"y\":[[],{}]}}}";
  auto parsed = ParseJson(text, {});
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(DumpJson(*parsed), text);
}

TEST(JsonParse, ScalarsAtTheTop) {
  for (const char* text : {"1", "null", "\"x\"", "true", " [] ", "\xEF\xBB\xBF{}"})
    EXPECT_TRUE(ParseJson(text, {}).has_value()) << text;
}

struct BadCase {
  const char* name;
  std::string text;
  const char* field;
  const char* message;
};

TEST(JsonParse, RefusesAndNamesThePlace) {
  const BadCase cases[] = {
      {"empty", "", "", "unexpected end"},
      {"blank", "  \n", "", "unexpected end"},
      {"cut object", R"({"a":1)", "", "unexpected end"},
      {"cut string", R"({"a":{"b":"xyz)", "a.b", "missing closing quote"},
      {"trailing", "{} {}", "", "invalid JSON"},
      {"trailing comma", R"({"a":[1,]})", "a[1]", "invalid JSON"},
      {"comment", "/* */ 1", "", "invalid JSON"},
      {"single quotes", "{'a':1}", "", "invalid JSON"},
      {"NaN", R"({"t":NaN})", "t", "invalid literal"},
      {"Infinity", R"({"t":Infinity})", "t", "invalid literal"},
      {"minus Infinity", R"({"t":-Infinity})", "t", "invalid number"},
      {"leading zero", R"([01])", "[1]", "invalid JSON"},
      {"1e400", R"({"a":[0,{"temperature":1e400}]})", "a[1].temperature", "range of a double"},
      {"-1e400", R"({"temperature":-1e400})", "temperature", "range of a double"},
      {"huge integer", "{\"t\":" + std::string(400, '9') + "}", "t", "range of a double"},
      {"duplicate", R"({"a":1,"b":{"c":1,"c":2}})", "b.c", "appears twice"},
      {"duplicate escaped", R"({"a":1,"\u0061":2})", "a", "appears twice"},
      {"lone high surrogate", R"({"m":["\ud83d"]})", "m[0]", "surrogate"},
      {"lone low surrogate", R"({"m":["\ude00"]})", "m[0]", "surrogate"},
      {"surrogate in a key", R"({"\ud83dx":1})", "", "surrogate"},
      {"invalid UTF-8", "{\"m\":\"a\xFFz\"}", "m", "ill-formed UTF-8"},
      {"overlong UTF-8", "{\"m\":\"\xC0\xAF\"}", "m", "ill-formed UTF-8"},
      {"encoded surrogate", "{\"m\":\"\xED\xA0\x80\"}", "m", "ill-formed UTF-8"},
      {"cut UTF-8", "{\"m\":\"\xE4\xBD\"}", "m", "ill-formed UTF-8"},
      {"control character", "{\"m\":\"a\nb\"}", "m", "control character"},
      {"bad escape", R"({"m":"\x"})", "m", "forbidden character"},
      {"NUL ends the text early", std::string("{}\0{", 4), "", "NUL byte"},
      {"NUL in a string", std::string("{\"a\":\"\0\"}", 9), "", "NUL byte"},
  };
  for (const BadCase& bad : cases) {
    SCOPED_TRACE(bad.name);
    const Error error = ErrorOf(bad.text);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.field, bad.field) << error.message;
    EXPECT_THAT(error.message, HasSubstr(bad.message));
    EXPECT_THAT(error.message, HasSubstr("byte ")) << "no position";
  }
}

TEST(JsonParse, DuplicateKeysOfLargeObjectsAreFound) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(ParseJson(text + "\"x\":0}", {}).has_value());
  const Error error = ErrorOf(text + "\"77\":0}");
  EXPECT_EQ(error.field, "77");
  EXPECT_THAT(error.message, HasSubstr("appears twice"));
}

TEST(JsonParse, DoesNotRepeatWhatItRead) {
  for (const char* text : {R"({"content":"CANARY)", R"({"content":"CANARY\x"})", R"(["CANARY" 1])", R"([CANARY])",
                           R"({"a":1,"b" "CANARY"})"}) {
    EXPECT_THAT(ErrorOf(text).message, Not(HasSubstr("CANARY"))) << text;
  }
}

TEST(JsonParse, LimitBytes) {
  JsonLimits limits;
  limits.bytes_max = 8;
  EXPECT_TRUE(ParseJson("[1,2,34]", limits).has_value());
  const Error error = ErrorOf("[1,2,345]", limits);
  EXPECT_EQ(error.code, ErrorCode::kTooLarge);
  EXPECT_THAT(error.message, HasSubstr("limit is 8 bytes"));
}

TEST(JsonParse, LimitDepth) {
  JsonLimits limits;
  limits.depth_max = 3;
  EXPECT_TRUE(ParseJson(R"([{"a":[1]}])", limits).has_value());
  const Error error = ErrorOf(R"([{"a":[[1]]}])", limits);
  EXPECT_EQ(error.field, "[0].a[0]");
  EXPECT_THAT(error.message, HasSubstr("deeper than 3 levels"));
}

TEST(JsonParse, HundredThousandLevelsDoNotOverflowTheStack) {
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(ErrorOf(std::string(100'000, '[')).message, HasSubstr("deeper than 64 levels"));
  EXPECT_THAT(ErrorOf(objects).message, HasSubstr("deeper than 64 levels"));
  JsonLimits deep;
  deep.depth_max = 1'000'000;
  EXPECT_TRUE(
      ParseJson(std::string(100'000, '[') + std::string(100'000, ']'), deep).has_value());  // freed iteratively too
}

TEST(JsonParse, LimitNodes) {
  JsonLimits limits;
  limits.nodes_max = 4;
  size_t nodes = 0;
  EXPECT_TRUE(ParseJson("[1,2,3]", limits, &nodes).has_value());
  EXPECT_EQ(nodes, 4u);
  const Error error = ErrorOf("[1,2,3,4]", limits);
  EXPECT_EQ(error.field, "[3]");
  EXPECT_THAT(error.message, HasSubstr("more than 4 values"));
  EXPECT_THAT(ErrorOf("[1,2,3,[]]", limits).message, HasSubstr("more than 4 values"));
}

TEST(JsonParse, PathsAreCut) {
  const Error error = ErrorOf("{\"" + std::string(5'000, 'k') + "\":{\"\\u0007\":nul}}");
  EXPECT_LT(error.field.size(), 400u);
  EXPECT_THAT(error.field, HasSubstr(".?"));
}

}  // namespace
}  // namespace headrace
