// Goal: typed reading names the field, treats null as absent, refuses booleans as numbers, and lists what nobody read.
#include "json/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Json Parsed(std::string_view text) {
  auto parsed = ParseJson(text, {});
  EXPECT_TRUE(parsed.has_value());
  return parsed ? *parsed : Json();
}

TEST(JsonFields, AbsentAndNullAreTheSame) {
  const Json json = Parsed(R"({"a":null})");
  auto fields = *JsonFields::Of(json, "");
  for (const char* key : {"a", "b"}) {
    EXPECT_EQ(*fields.Number(key, 0, 1), std::nullopt);
    EXPECT_EQ(*fields.Integer(key, 0, 1), std::nullopt);
    EXPECT_EQ(*fields.Bool(key), std::nullopt);
    EXPECT_EQ(*fields.String(key, 1), std::nullopt);
    EXPECT_EQ(*fields.Array(key, 1), nullptr);
    EXPECT_EQ(*fields.Object(key), nullptr);
    EXPECT_EQ(fields.Find(key), nullptr);
  }
}

TEST(JsonFields, IntegersMayBeWrittenAsFractions) {
  for (const char* text : {"3", "3.0", "0.3e1"}) {
    const Json json = Parsed(std::string(R"({"n":)") + text + "}");
    EXPECT_EQ(*JsonFields::Of(json, "")->Integer("n", 0, 10), 3) << text;
  }
}

TEST(JsonFields, IntegersOutOfRangeOrNotWhole) {
  for (const char* text : {"3.5", "-1", "11", "1e300", "18446744073709551615", "9223372036854775808.0"}) {
    const Json json = Parsed(std::string(R"({"n":)") + text + "}");
    auto n = JsonFields::Of(json, "")->Integer("n", 0, 10);
    ASSERT_FALSE(n.has_value()) << text;
    EXPECT_EQ(n.error().field, "n");
    EXPECT_THAT(n.error().message, HasSubstr("from 0 to 10"));
  }
  const Json edges = Parsed(R"({"low":-9223372036854775808,"high":9223372036854775807})");
  EXPECT_EQ(*JsonFields::Of(edges, "")->Integer("low", INT64_MIN, INT64_MAX), INT64_MIN);
  EXPECT_EQ(*JsonFields::Of(edges, "")->Integer("high", INT64_MIN, INT64_MAX), INT64_MAX);
}

TEST(JsonFields, WrongTypesNameFieldAndType) {
  const Json json = Parsed(R"({"b":true,"s":"1","a":[],"o":{},"f":1.5})");
  auto fields = *JsonFields::Of(json, "messages[2]");
  auto number = fields.Number("b", 0, 1);
  ASSERT_FALSE(number.has_value());
  EXPECT_EQ(number.error().field, "messages[2].b");
  EXPECT_THAT(number.error().message, HasSubstr("a boolean"));
  EXPECT_FALSE(fields.Integer("b", 0, 1).has_value());
  EXPECT_FALSE(fields.Number("s", 0, 1).has_value());
  EXPECT_FALSE(fields.Bool("s").has_value());
  EXPECT_FALSE(fields.String("a", 9).has_value());
  EXPECT_FALSE(fields.Array("o", 9).has_value());
  EXPECT_FALSE(fields.Object("a").has_value());
  EXPECT_FALSE(fields.Integer("f", 0, 9).has_value());
  EXPECT_FALSE(fields.OneOf("s", {"a", "b"}).has_value());
}

TEST(JsonFields, Limits) {
  const Json json = Parsed(R"({"s":"four","a":[1,2],"n":0.5})");
  auto fields = *JsonFields::Of(json, "");
  EXPECT_EQ(*fields.String("s", 4), "four");
  EXPECT_THAT(fields.String("s", 3).error().message, HasSubstr("limit is 3"));
  EXPECT_TRUE(fields.Array("a", 2).has_value());
  EXPECT_THAT(fields.Array("a", 1).error().message, HasSubstr("limit is 1"));
  EXPECT_EQ(*fields.Number("n", 0.5, 0.5), 0.5);
  EXPECT_THAT(fields.Number("n", 0, 0.4).error().message, HasSubstr("from 0 to 0.4"));
  EXPECT_THAT(JsonFields::Of(json, "", 2).error().message, HasSubstr("limit is 2"));
}

TEST(JsonFields, TopLevelMustBeAnObject) {
  for (const char* text : {"[]", "null", "1", "\"x\""}) {
    const Json json = Parsed(text);
    auto fields = JsonFields::Of(json, "");
    ASSERT_FALSE(fields.has_value());
    EXPECT_EQ(fields.error().field, "");
    EXPECT_THAT(fields.error().message, HasSubstr("JSON object"));
  }
}

TEST(JsonFields, ListsWhatNobodyRead) {
  const Json json = Parsed(R"({"a":1,"x":1,"b":2,"y":1,"z":1})");
  auto fields = *JsonFields::Of(json, "");
  (void)fields.Find("a");
  (void)fields.Integer("b", 0, 9);
  EXPECT_THAT(fields.Unread(10), ElementsAre("x", "y", "z"));
  EXPECT_THAT(fields.Unread(2), ElementsAre("x", "y"));
}

}  // namespace
}  // namespace headrace
