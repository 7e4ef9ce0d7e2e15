// Goal: what serve prints can be pasted, whatever the model's name, and fits the model and its keys.
#include "server/client_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ClientLines, AChatModelWithoutKeys) {
  const std::string text = FirstRequestLines({.url = "http://h:1", .model = "m"});
  EXPECT_THAT(text, AllOf(HasSubstr("curl http://h:1/v1/chat/completions "), HasSubstr("-d '{\"model\": \"m\", "),
                          HasSubstr("api_key=\"none\""), HasSubstr("chat.completions.create(model=\"m\", ")));
  EXPECT_THAT(text, Not(HasSubstr("KEY")));
}

TEST(ClientLines, AModelWithoutTemplateCompletesText) {
  const std::string text = FirstRequestLines({.url = "http://h:1", .model = "m", .chat = false});
  EXPECT_THAT(text, AllOf(HasSubstr("/v1/completions "), HasSubstr("client.completions.create("),
                          HasSubstr("\"prompt\": "), Not(HasSubstr("messages")), Not(HasSubstr("chat"))));
}

TEST(ClientLines, BothReadTheKeyFromTheSameVariable) {
  EXPECT_THAT(FirstRequestLines({.url = "http://h:1", .model = "m", .needs_key = true}),
              AllOf(HasSubstr("export KEY="), HasSubstr("Bearer $KEY\""), HasSubstr("import os\nfrom openai"),
                    HasSubstr("api_key=os.environ[\"KEY\"]")));
}

TEST(ClientLines, NamesAreQuoted) {
  EXPECT_THAT(FirstRequestLines({.url = "http://h:1", .model = "it's \"x\" \\ $(id)"}),
              AllOf(HasSubstr(R"x(-d '{"model": "it'\''s \"x\" \\ $(id)", )x"),
                    HasSubstr(R"x(create(model="it's \"x\" \\ $(id)", )x")));
}

}  // namespace
}  // namespace headrace
