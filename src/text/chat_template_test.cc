// Goal: chat templates render byte for byte as Python's Jinja2 renders them under transformers' settings, refuse what
// it refuses, and no template outruns its budget of steps, bytes, time and stack (O-41). The goldens come from
// tests/text/make_template_goldens.py.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "text/test_vocabulary.h"

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

constexpr RenderLimits kAtGoldenTime{.now_unix_seconds = 1753142401};
constexpr double kHangS = 30;  // nothing that is bounded takes this long, on however slow a machine

Result<std::string> Render(const std::string& source, const std::string& context = "{}", RenderLimits limits = {}) {
  HR_ASSIGN_OR_RETURN(const auto chat_template, ChatTemplate::Parse(source));
  return chat_template->Render(context, limits);
}

// `golden` holds text, raised (the template's own message) or error (some failure, each engine in its words).
void ExpectGolden(const Json& golden, const Result<std::string>& rendered, const std::string& name) {
  if (golden.contains("text")) {
    ASSERT_TRUE(rendered.has_value()) << name << ": " << rendered.error().message;
    EXPECT_EQ(*rendered, golden["text"].get<std::string>()) << name;
    return;
  }
  ASSERT_FALSE(rendered.has_value()) << name << ": expected a failure, got " << *rendered;
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument) << name;
  if (golden.contains("raised")) {
    EXPECT_EQ(rendered.error().message, golden["raised"].get<std::string>()) << name;
  }
}

class Templates : public testing::TestWithParam<const char*> {};

TEST_P(Templates, EqualPython) {
  const Json cases = Json::parse(TestFile("cases.json"));
  const Json goldens = Json::parse(TestFile("goldens/templates.json"))[GetParam()];
  auto chat_template = ChatTemplate::Parse(TestFile(std::string("templates/") + GetParam() + ".jinja"));
  ASSERT_TRUE(chat_template.has_value()) << chat_template.error().message;
  ASSERT_EQ(cases.size(), goldens.size());
  for (const Json& one : cases) {
    Json context = one["context"];
    context["bos_token"] = "<s>";
    context["eos_token"] = "</s>";
    const std::string name = one["name"];
    ExpectGolden(goldens[name], (*chat_template)->Render(context.dump(), kAtGoldenTime), name);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Templates,
                         testing::Values("chatml", "llama3", "mistral", "gemma", "qwen3", "phi", "deepseek_r1",
                                         "granite"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChatTemplate, SnippetsEqualPython) {
  const Json goldens = Json::parse(TestFile("goldens/snippets.json"));
  const std::string context = goldens["context"].dump();
  for (const Json& snippet : goldens["snippets"]) {
    const std::string source = snippet["source"];
    ExpectGolden(snippet, Render(source, context, kAtGoldenTime), source);
  }
}

TEST(ChatTemplate, RefusesWhatIsNotATemplate) {
  for (const char* source : {"{% if %}", "{{ a", "{% for x in %}{% endfor %}", "{% endif %}", "\xFF"}) {
    auto parsed = ChatTemplate::Parse(source);
    ASSERT_FALSE(parsed.has_value()) << source;
    EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(parsed.error().field, "chat_template");
  }
  EXPECT_EQ(Render("x", "{").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(Render("x", std::string(100'000, '[')).error().code, ErrorCode::kInvalidArgument);
}

TEST(ChatTemplate, ClockIsTheSystemsByDefault) {
  auto year = Render("{{ strftime_now('%Y') | int > 2023 }}");
  ASSERT_TRUE(year.has_value()) << year.error().message;
  EXPECT_EQ(*year, "True");
}

// O-41: a template rendered with no work limit: 100 bytes burn minutes of CPU.
struct Hostile {
  const char* name;
  const char* source;
};
class O41 : public testing::TestWithParam<Hostile> {};

TEST_P(O41, EndsWithinItsBudget) {
  const auto start = std::chrono::steady_clock::now();
  auto rendered = Render(GetParam().source, R"({"s": "0123456789abcdef", "l": [1, 2, 3]})");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 21.0);  // half a second of a processor, however crowded
  ASSERT_FALSE(rendered.has_value()) << rendered->substr(0, 100);
  EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument) << rendered.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Templates, O41,
    testing::Values(
        Hostile{"Loops", "{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}"},
        Hostile{"SilentLoops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"},
        Hostile{"LongRepeat", "{{ s * 1000000000 }}"}, Hostile{"RepeatedList", "{{ l * 1000000000 }}"},
        Hostile{"HugeRange", "{{ range(1000000000) | list | length }}"},
        Hostile{"Doubling",
                "{% set n = namespace(s=s) %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}"},
        Hostile{"DoublingLists",
                "{% set n = namespace(s=l) %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}{{ n.s | "
                "length }}"},
        Hostile{"SharedLists",
                "{% set n = namespace(s=l) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}"},
        Hostile{"SharedListsAsJson",
                "{% set n = namespace(s=l) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s | "
                "tojson }}"},
        Hostile{"SharedListsAsText",
                "{% set n = namespace(s=l) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ (n.s ~ "
                "'x') | length }}"},
        Hostile{"DeepJson",
                "{% set n = namespace(s=l) %}{% for i in range(50000) %}{% set n.s = [n.s] %}{% endfor %}{{ n.s | "
                "tojson }}"},
        Hostile{"Recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
        Hostile{"Replace",
                "{% set n = namespace(s=s) %}{% for i in range(60) %}{% set n.s = n.s | replace('0', n.s) %}{% endfor "
                "%}{{ n.s }}"},
        Hostile{"ReplaceMethod",
                "{% set n = namespace(s=s) %}{% for i in range(60) %}{% set n.s = n.s.replace('0', n.s) %}{% endfor "
                "%}{{ n.s }}"},
        Hostile{"Join",
                "{% set n = namespace(s=s) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] | join(n.s) %}{% endfor "
                "%}{{ n.s }}"},
        Hostile{"JoinMethod",
                "{% set n = namespace(s=s) %}{% for i in range(60) %}{% set n.s = n.s.join([n.s, n.s]) %}{% endfor "
                "%}{{ n.s }}"},
        Hostile{"Indent", "{{ s | indent(1000000000, true) }}"}, Hostile{"Format", "{{ '%1000000000d' | format(1) }}"},
        Hostile{"Power", "{{ 2 ** 100000000000 }}"}, Hostile{"Include", "{% include '/etc/passwd' %}"},
        Hostile{"Import", "{% import '/etc/passwd' as p %}{{ p }}"}, Hostile{"Extends", "{% extends '../base' %}"},
        Hostile{"Raises", "{{ raise_exception('no') }}"}),
    [](const auto& info) { return std::string(info.param.name); });

// These may succeed or fail, but must neither take long nor bring the process down.
TEST(ChatTemplate, O41DeepValuesNeedNoCallersStack) {
  const std::string deep = "{% set n = namespace(s=1) %}{% for i in range(60000) %}{% set n.s = [n.s] %}{% endfor %}";
  for (const char* use :
       {"{{ n.s | length }}", "{{ n.s }}", "{{ n.s ~ '' }}", "{{ n.s == n.s }}", "{{ n.s | string | length }}",
        "{{ [n.s, n.s] | unique | list | length }}", "{{ [n.s, n.s] | sort | length }}", "{{ n.s | pprint }}"}) {
    const auto start = std::chrono::steady_clock::now();
    auto rendered = Render(deep + use);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), kHangS) << use;
    if (!rendered) EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument) << use << rendered.error().message;
  }
}

// Comparing values whose parts are shared 2^21 times is one step to the engine: the time limit answers, a second such
// render too, a third is refused at once, and the template works again when they have ended.
TEST(ChatTemplate, O41SharedValuesCannotHoldTheCaller) {
  auto chat_template = ChatTemplate::Parse(
      "{% set n = namespace(a=1, b=1) %}{% for i in range(depth) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}"
      "{% endfor %}{{ n.a == n.b }}");
  ASSERT_TRUE(chat_template.has_value());
  RenderLimits limits;
  limits.time_ms_max = 1;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) {
    auto rendered = (*chat_template)->Render(R"({"depth": 21})", limits);
    ASSERT_FALSE(rendered.has_value());
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), kHangS);
  for (int i = 0; i < 3000; ++i) {
    if ((*chat_template)->Render(R"({"depth": 3})").has_value()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ADD_FAILURE() << "the template did not recover within five minutes";
}

TEST(ChatTemplate, BudgetsSayWhatRanOutAndWhatToDo) {
  const auto expect = [](const Result<std::string>& rendered, const char* what) {
    ASSERT_FALSE(rendered.has_value()) << what;
    EXPECT_EQ(rendered.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(rendered.error().field, "chat_template");
    EXPECT_THAT(rendered.error().message, testing::AllOf(HasSubstr(what), HasSubstr("send less text, or start with")));
  };
  RenderLimits limits;
  limits.output_bytes_max = 10;
  EXPECT_TRUE(Render("0123456789", "{}", limits).has_value());
  expect(Render("0123456789a", "{}", limits), "more than 10 bytes");
  const char* busy = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
  limits = {};
  limits.time_ms_max = 600'000;  // a slow machine must run out of steps first
  expect(Render(busy, "{}", limits), "more work than allowed");
  limits = {};
  limits.steps_max = 1'000'000'000;
  limits.time_ms_max = 1;
  expect(Render("{% for a in range(100000) %}{{ a }}{% endfor %}", "{}", limits), "longer than allowed");
}

// A template's time is the processor's, not the clock's: beside busy threads an honest request was a 400.
TEST(ChatTemplate, ACrowdedMachineDoesNotShortenTheTime) {
  const char* work = "{% for a in range(10) %}{% for b in range(20000) %}{{ b }}{% endfor %}{% endfor %}";
  RenderLimits limits;
  limits.steps_max = 100'000'000;
  limits.time_ms_max = 600'000;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(Render(work, "{}", limits).has_value());
  const auto alone = std::chrono::steady_clock::now() - begin;
  limits.time_ms_max = static_cast<uint64_t>(std::chrono::ceil<std::chrono::milliseconds>(2 * alone).count());
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 4 * std::max(1u, std::thread::hardware_concurrency()); ++i) {
    others.emplace_back([&] {
      while (!stop.load()) {
      }
    });
  }
  const auto rendered = Render(work, "{}", limits);
  stop = true;
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(rendered.has_value()) << rendered.error().message;
}

TEST(ChatTemplate, SourceAndMessagesAreBounded) {
  EXPECT_TRUE(ChatTemplate::Parse(std::string(kTemplateBytesMax, 'x')).has_value());
  const auto parsed = ChatTemplate::Parse(std::string(kTemplateBytesMax + 1, 'x'));
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(parsed.error().field, "chat_template");
  EXPECT_THAT(parsed.error().message, testing::AllOf(HasSubstr("1048576 bytes"), HasSubstr("--chat-template")));
  const auto rendered = Render("x", std::string(kTemplateContextBytesMax + 1, ' '));
  ASSERT_FALSE(rendered.has_value());
  EXPECT_EQ(rendered.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(rendered.error().field, "messages");
  EXPECT_THAT(rendered.error().message, testing::AllOf(HasSubstr("67108864 bytes"), HasSubstr("send less text")));
}

// The default budget must not stand in the way of a long, honest conversation.
TEST(ChatTemplate, LongConversationFits) {
  Json context;
  for (int i = 0; i < 1000; ++i) {
    context["messages"].push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(1000, 'x')}});
  }
  context["add_generation_prompt"] = true;
  context["bos_token"] = "<s>";
  for (const char* name : {"qwen3", "llama3", "gemma", "chatml"}) {
    auto rendered = Render(TestFile(std::string("templates/") + name + ".jinja"), context.dump());
    EXPECT_TRUE(rendered.has_value()) << name << ": " << rendered.error().message;
  }
}

}  // namespace
}  // namespace headrace
