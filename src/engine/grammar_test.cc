// Goal: an answer with a grammar is one of it: what the model would say where that is allowed, something allowed where
// it is not; it ends where nothing may follow; neighbours, preemption, chunks and candidates change nothing of it; what
// a grammar excludes a minimum, a ban or ignore_eos does not bring back.
#include "text/grammar.h"

#include <fmt/format.h>

#include <regex>

#include "engine/test_world.h"

namespace headrace {
namespace {

std::unique_ptr<Grammar> GrammarOf(const World& w, std::string_view regex) {
  auto grammar = Grammar::Compile(*w.tokenizer, GrammarKind::kRegex, regex);
  EXPECT_TRUE(grammar.has_value()) << grammar.error().message;
  return std::move(*grammar);
}

std::unique_ptr<EngineRequest> Ask(World& w, std::string_view regex, int64_t max_tokens = 40) {
  auto r = w.Request("hi");
  r->grammar = GrammarOf(w, regex);
  r->max_tokens = max_tokens;
  return r;
}

TEST(EngineGrammarTest, WhatTheModelSaysIsKeptWhereItIsAllowed) {
  World w(kFox);
  const World::Answer free = w.Ask(w.Request("hi"));
  const World::Answer same = w.Ask(Ask(w, "[A-Za-z ]{1,40}"));
  EXPECT_EQ(same.text, free.text);
  EXPECT_EQ(same.finish, EndReason::kStop);
  EXPECT_EQ(same.tokens, free.tokens);
}

TEST(EngineGrammarTest, WhatIsNotAllowedIsNotSaid) {
  World w(kFox);
  const World::Answer answer = w.Ask(Ask(w, "[0-9]{3}"));
  EXPECT_TRUE(std::regex_match(answer.text, std::regex("[0-9]{3}"))) << answer.text;
  EXPECT_EQ(answer.finish, EndReason::kStop) << "nothing may follow, so nothing is asked of the model any more";
  EXPECT_EQ(w.Ask(Ask(w, "[0-9]{300}", 7)).finish, EndReason::kLength);
  EXPECT_EQ(w.Ask(Ask(w, "[0-9]{7}", 7)).finish, EndReason::kStop) << "whole with the last token";
}

TEST(EngineGrammarTest, NothingBringsBackWhatTheGrammarExcludes) {
  World w(kFox);
  auto least = Ask(w, "ab");
  least->min_tokens = 10;
  EXPECT_EQ(w.Ask(std::move(least)).text, "ab");
  auto endless = Ask(w, "ab?");
  endless->ignore_eos = true;
  EXPECT_TRUE(w.Ask(std::move(endless)).text.starts_with("a"));
  auto banned = Ask(w, "x[yz]");
  banned->logit_bias = {{'x', kBanBias}};
  const World::Answer answer = w.Ask(std::move(banned));
  EXPECT_TRUE(answer.text == "xy" || answer.text == "xz") << answer.text;
}

TEST(EngineGrammarTest, StopStringsAndLogprobsGoOn) {
  World w(kFox);
  auto stopped = Ask(w, "The quick brown (fox|dog)");
  stopped->stops = *StopMatcher::Build(std::vector<std::string>{"brown"});
  EXPECT_EQ(w.Ask(std::move(stopped)).text, "The quick ");
  auto logprobs = Ask(w, "[0-9]{3}");
  logprobs->top_logprobs = 2;
  auto stream = w.engine.Submit(std::move(logprobs), nullptr);
  ASSERT_TRUE(stream);
  w.Run();
  const int tokens = w.Read(**stream).tokens;
  int results = 0;
  for (SampleResult result; (*stream)->PopLogprobs(result);) ++results;
  EXPECT_EQ(results, tokens);
}

// Letters drawn by seed, in a pool too small for all: preempted, computed again, in other batches.
TEST(EngineGrammarTest, TheAnswerIsTheSameWhateverHappensBeside) {
  std::string script = R"({"kv_blocks": 12, "sequences_max": 8, "replies": [)";
  for (int i = 0; i < 8; ++i)
    script +=
        fmt::format(R"({{"match": "<{}>", "pieces": ["a", "{}", "bc ", "x", "c"], "repeat": 40}},)", i, Letters(i, 2));
  script += R"({"pieces": ["a"]}]})";
  constexpr char kPattern[] = "([abc]{3} )*[abc]{2}";
  const auto ask = [&](World& w, uint64_t seed) {
    auto r = w.Request(Letters(seed, 100) + fmt::format("<{}>", seed));
    r->grammar = GrammarOf(w, kPattern);
    r->max_tokens = 150;
    r->sampling.seed = seed;
    return r;
  };
  std::vector<std::string> alone;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    World w(script);
    alone.push_back(w.Ask(ask(w, seed)).text);
    EXPECT_FALSE(alone.back().empty());
    EXPECT_TRUE(std::regex_match(alone.back(), std::regex("([abc]{3} )*[abc]{0,3}"))) << alone.back();
  }
  World w(script, {.waiting_max = 8, .check_integrity = true, .room_ahead = false});
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (uint64_t seed = 0; seed < 8; ++seed) streams.push_back(*w.engine.Submit(ask(w, seed), nullptr));
  w.Run();
  for (size_t i = 0; i < streams.size(); ++i) EXPECT_EQ(w.Read(*streams[i]).text, alone[i]) << i;
  EXPECT_GT(w.engine.stats().preemptions.load(), 0u) << "the test is meant to preempt";
}

}  // namespace
}  // namespace headrace
