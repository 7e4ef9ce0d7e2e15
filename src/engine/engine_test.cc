// Goal: the engine keeps its word to one request at a time and to all together: tokens in order, stop strings cut
// exactly, limits end an answer, a cancel frees everything, a fault hits one request only, refusals come at once with a
// time to retry, and a step allocates nothing. A scripted executor on virtual time stands in for the model.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <utility>

#include "base/count_allocations.h"
#include "base/random.h"
#include "engine/test_world.h"

namespace headrace {
namespace {

TEST(EngineTest, ARequestGetsItsTokensAndAStop) {
  World w(kFox);
  const auto a = w.Ask(w.Request("hello"));
  EXPECT_EQ(a.text, "The quick brown fox");
  EXPECT_EQ(a.tokens, 5);
  EXPECT_EQ(a.finish, EndReason::kStop);
  EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
  EXPECT_EQ(w.engine.inside(), 0);
}

TEST(EngineTest, O02StopStringsAcrossTokensCutExactly) {
  const struct {
    std::vector<std::string> stops;
    std::string text;
    bool include;
  } cases[] = {{{"own fox"}, "The quick br", false},
               {{"own foxes"}, "The quick brown fox", false},
               {{"brown f", "own"}, "The quick br", false},
               {{"quick"}, "The ", false},
               {{"quick"}, "The quick", true},
               {{"The"}, "", false}};
  for (const auto& c : cases) {
    World w(kFox);
    auto r = w.Request("x");
    r->stops = *StopMatcher::Build(c.stops);
    r->include_stop = c.include;
    const auto a = w.Ask(std::move(r));
    EXPECT_EQ(a.text, c.text);
    EXPECT_EQ(a.finish, EndReason::kStop);
  }
}

TEST(EngineTest, LimitsEndAnAnswer) {
  World w(kFox);
  auto r = w.Request("x");
  r->max_tokens = 2;
  auto a = w.Ask(std::move(r));
  EXPECT_EQ(a.text, "The qui");
  EXPECT_EQ(a.finish, EndReason::kLength);
  r = w.Request("x");
  r->ignore_eos = true;
  r->max_tokens = 9;
  a = w.Ask(std::move(r));
  EXPECT_EQ(a.tokens, 9);
  EXPECT_EQ(a.finish, EndReason::kLength);
  r = w.Request("x");
  r->min_tokens = 7;
  r->max_tokens = 20;
  a = w.Ask(std::move(r));
  EXPECT_EQ(a.text, "The quick brown fox  ") << "the end token is banned until min_tokens";
  EXPECT_EQ(a.finish, EndReason::kStop);
  World small(R"({"context": 64, "kv_blocks": 1, "replies": [{"pieces": ["a"], "repeat": 1000}]})");
  a = small.Ask(small.Request(std::string(50, 'p')));
  EXPECT_EQ(a.tokens, 14) << "the context is full";
  EXPECT_EQ(a.finish, EndReason::kLength);
  EXPECT_EQ(small.engine.Submit(small.Request(std::string(64, 'p')), nullptr).error().code, ErrorCode::kContextLength);
}

TEST(EngineTest, StopTokensEndWithoutText) {
  World w(kFox);
  auto r = w.Request("x");
  r->stop_token_ids = {kScriptFirstPiece + 2};
  const auto a = w.Ask(std::move(r));
  EXPECT_EQ(a.text, "The qui");
  EXPECT_EQ(a.finish, EndReason::kStop);
}

TEST(EngineTest, ACancelFreesItsPlaceAndNeighboursGoOn) {
  World w(R"({"replies": [{"pieces": ["ab"], "repeat": 50}]})");
  auto first = *w.engine.Submit(w.Request("one"), nullptr);
  auto second = *w.engine.Submit(w.Request("two"), nullptr);
  w.Run(5);
  EXPECT_EQ(w.engine.stats().running.load(), 2);
  first->Cancel();
  w.Run(1);
  EXPECT_EQ(w.engine.stats().running.load(), 1);
  w.Run();
  EXPECT_EQ(w.Read(*second).tokens, 50);
  EXPECT_EQ(w.engine.stats().cancelled.load(), 1u);
  EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
}

TEST(EngineTest, AFaultHitsOneRequestOnly) {
  World w(R"({"replies": [{"match": "bad", "pieces": ["x", "y", "z"], "fault_at": 2}, {"pieces": ["good"]}]})");
  auto bad = *w.engine.Submit(w.Request("bad"), nullptr);
  auto good = *w.engine.Submit(w.Request("fine"), nullptr);
  w.Run();
  EXPECT_EQ(w.Read(*good).text, "good");
  const auto a = w.Read(*bad);
  EXPECT_EQ(a.text, "xy");
  EXPECT_EQ(a.finish, EndReason::kError);
  EXPECT_EQ(bad->error().code, ErrorCode::kInternal);
}

TEST(EngineTest, RefusalsSayWhenToComeBackAndLateOnesAreEnded) {
  World w(R"({"sequences_max": 1, "step_ms": 100, "replies": [{"pieces": ["a"], "repeat": 100}]})");
  auto running = *w.engine.Submit(w.Request("x"), nullptr);
  w.Run(2);
  auto late = w.Request("y");
  late->place.start_before = w.clock.Now() + kNsPerSecond;
  auto waiting = *w.engine.Submit(std::move(late), nullptr);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(w.engine.Submit(w.Request("z"), nullptr));
  const auto refused = w.engine.Submit(w.Request("z"), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_GT(refused.error().retry_after_ms, 0);
  w.Run(15);
  const auto a = w.Read(*waiting);
  EXPECT_EQ(a.finish, EndReason::kError);
  EXPECT_EQ(waiting->error().code, ErrorCode::kOverloaded);
  auto slow = w.Request("z");  // the refused one comes back, and its place was kept
  slow->finish_before = w.clock.Now() + 20 * kNsPerSecond;
  auto timed = *w.engine.Submit(std::move(slow), nullptr);
  ASSERT_NE(timed, nullptr);
  w.Run();
  EXPECT_EQ(w.Read(*timed).finish, EndReason::kError);
  EXPECT_EQ(timed->error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(w.Read(*running).tokens, 100);
}

// `--max-waiting 0`: who cannot run at once is refused, and the server does not end.
TEST(EngineTest, WithoutPlacesToWaitTheSecondIsRefused) {
  World w(R"({"sequences_max": 1, "replies": [{"pieces": ["ab"], "repeat": 3}]})",
          {.waiting_max = 0, .check_integrity = true});
  auto running = w.engine.Submit(w.Request("x"), nullptr);
  ASSERT_TRUE(running);
  const auto refused = w.engine.Submit(w.Request("y"), nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(refused.error().message.find("every place to wait is taken. Retry later."), std::string::npos);
  EXPECT_GT(refused.error().retry_after_ms, 0);
  w.Run();
  EXPECT_EQ(w.Read(**running).text, "ababab");
  EXPECT_EQ(w.Ask(w.Request("z")).text, "ababab");
}

// Who could not be answered in time is told at once; whoever is overtaken by its deadline in line never runs.
TEST(EngineTest, DeadlinesAreJudgedAtTheDoorAndKeptInLine) {
  World w(R"({"sequences_max": 1, "step_ms": 100, "batch_tokens_max": 64, "context": 8192, "kv_blocks": 200,
              "replies": [{"pieces": ["a"], "repeat": 50}]})",
          {.waiting_max = 16, .check_integrity = true, .prefix_cache = false});
  auto urgent = w.Request(std::string(640, 'p'));
  urgent->place.band = Band::kHigh;
  auto first = *w.engine.Submit(std::move(urgent), nullptr);
  w.Run(5);  // 64 tokens in 100 ms were measured
  const auto with_deadline = [&](TimeNs in, size_t tokens) {
    auto r = w.Request(std::string(tokens, 'q'));
    r->place.deadline = w.clock.Now() + in;
    return w.engine.Submit(std::move(r), nullptr);
  };
  const auto late = with_deadline(kNsPerSecond, 640);
  ASSERT_FALSE(late) << "half a second of work stands before a second of its own";
  EXPECT_EQ(late.error().code, ErrorCode::kDeadlineExceeded) << "not even an idle server could";
  const auto tight = with_deadline(1200 * kNsPerMs, 640);
  ASSERT_FALSE(tight);
  EXPECT_EQ(tight.error().code, ErrorCode::kOverloaded);
  EXPECT_EQ(tight.error().field, "deadline");
  EXPECT_GT(tight.error().retry_after_ms, 0);
  // The prediction does not know how long the one that runs will decode.
  auto hopeful = with_deadline(2 * kNsPerSecond, 64);
  ASSERT_TRUE(hopeful);
  w.Run();
  EXPECT_EQ(w.Read(**hopeful).finish, EndReason::kError);
  EXPECT_EQ((*hopeful)->error().code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ((*hopeful)->stamps().started, 0);
  EXPECT_EQ(w.Read(*first).tokens, 50);
}

TEST(EngineTest, TenantsShareByWeightAndAKeysLimitIsItsOwn) {
  World w(R"({"sequences_max": 2, "step_ms": 10, "replies": [{"pieces": ["a"], "repeat": 4}]})",
          {.waiting_max = 100, .check_integrity = true, .prefix_cache = false});
  std::vector<std::shared_ptr<EngineStream>> of[2];
  for (int i = 0; i < 40; ++i) {
    for (uint64_t tenant : {0u, 1u}) {
      auto r = w.Request(std::string(60, 'p'));
      r->place.tenant = tenant + 1;
      r->place.weight = tenant == 0 ? 3 : 1;
      of[tenant].push_back(*w.engine.Submit(std::move(r), nullptr));
    }
  }
  auto limited = w.Request("x");
  limited->place.tenant = 2;
  limited->place.tenant_waiting_limit = 40;
  EXPECT_EQ(w.engine.Submit(std::move(limited), nullptr).error().code, ErrorCode::kRateLimited);
  w.Run(100);
  int finished[2] = {0, 0};
  for (int tenant : {0, 1}) {
    for (auto& stream : of[tenant]) finished[tenant] += w.Read(*stream).finish == EndReason::kStop ? 1 : 0;
  }
  EXPECT_GT(finished[1], 5);
  EXPECT_NEAR(finished[0], 3 * finished[1], 3);
}

// Under overload the rungs are taken in their order, critical work is served all the while, and afterwards everything
// is as before.
TEST(EngineTest, TheLadderGivesUpBatchWorkFirstAndComesDownAgain) {
  World w(R"({"sequences_max": 4, "step_ms": 100, "batch_tokens_max": 64, "context": 4096, "kv_blocks": 400,
              "drafts_max": 1, "replies": [{"pieces": ["a"], "repeat": 400}]})",
          {.waiting_max = 200,
           .check_integrity = true,
           .prefix_cache = false,
           .brown_out_wait = 2 * kNsPerSecond,
           .drafts_max = 1});
  const auto ask = [&](Band band, size_t prompt, int64_t tokens) {
    auto r = w.Request(std::string(prompt, 'p'));
    r->place.band = band;
    r->max_tokens = tokens;
    return w.engine.Submit(std::move(r), nullptr);
  };
  auto batch = *ask(Band::kBatch, 64, 300);
  w.Run(10);
  EXPECT_GT(w.Read(*batch).tokens, 5);
  std::vector<std::shared_ptr<EngineStream>> normal;
  // 640 tokens a second: 160 of them are a quarter of one.
  const auto until_rung = [&](Rung rung) {
    while (w.engine.stats().rung.load() < static_cast<int>(rung) && normal.size() < 150) {
      normal.push_back(*ask(Band::kNormal, 160, 1));
      w.Run(1);
    }
    return w.engine.stats().rung.load() == static_cast<int>(rung);
  };
  EXPECT_TRUE(until_rung(Rung::kNoDrafts));
  const uint64_t drafted = w.engine.stats().drafted_tokens.load();
  EXPECT_GT(drafted, 0u);
  EXPECT_TRUE(until_rung(Rung::kNoBatch));
  EXPECT_EQ(w.engine.stats().drafted_tokens.load(), drafted);
  (void)w.Read(*batch);
  w.Run(10);
  EXPECT_EQ(w.Read(*batch).tokens, 0) << "it rests";
  EXPECT_TRUE(until_rung(Rung::kShortAnswers));
  auto shortened = *ask(Band::kBatch, 10, 390);
  EXPECT_TRUE(until_rung(Rung::kShedBatch));
  EXPECT_EQ(ask(Band::kBatch, 10, 1).error().code, ErrorCode::kOverloaded);
  EXPECT_TRUE(until_rung(Rung::kShedNormal));
  const auto refused = ask(Band::kNormal, 10, 1);
  ASSERT_FALSE(refused);
  EXPECT_GE(refused.error().retry_after_ms, 1000);
  auto critical = *ask(Band::kCritical, 64, 3);
  w.Run(4);
  EXPECT_EQ(w.Read(*critical).tokens, 3);
  w.Run();
  for (auto& stream : normal) EXPECT_EQ(w.Read(*stream).tokens, 1);
  EXPECT_EQ(w.Read(*batch).finish, EndReason::kLength);
  EXPECT_EQ(w.Read(*shortened).tokens, kBrownOutTokens);
  EXPECT_EQ(w.engine.stats().shortened.load(), 1u);
  EXPECT_EQ(w.engine.stats().rung.load(), 0);
  for (int rung = 1; rung < kRungs; ++rung)
    EXPECT_GE(w.engine.stats().brown_outs[static_cast<size_t>(rung)].load(), 1u);
}

// Submit and its refusals do not wait for the step under way.
TEST(EngineTest, ASubmitDuringAStepIsAnsweredAtOnce) {
  struct Interrupted final : Executor {
    explicit Interrupted(Executor& inner) : inner(inner) {}
    const ExecutorDescription& Describe() const override { return inner.Describe(); }
    Status Submit(const StepInput& input) override { return inner.Submit(input); }
    Result<const StepOutput*> Wait() override {
      if (during) std::exchange(during, nullptr)();
      return inner.Wait();
    }
    void ReadBlock(int32_t block, std::span<std::byte> out) const override { inner.ReadBlock(block, out); }
    void WriteBlock(int32_t block, std::span<const std::byte> bytes) override { inner.WriteBlock(block, bytes); }
    Executor& inner;
    std::function<void()> during;
  };
  World w(R"({"sequences_max": 1, "replies": [{"pieces": ["ab"], "repeat": 3}]})");
  Interrupted executor(w.executor);
  Engine engine(executor, *w.tokenizer, w.clock, {.waiting_max = 1, .check_integrity = true});
  auto first = *engine.Submit(w.Request("x"), nullptr);
  std::shared_ptr<EngineStream> second;
  bool refused = false;
  executor.during = [&] {
    second = *engine.Submit(w.Request("y"), nullptr);
    refused = !engine.Submit(w.Request("z"), nullptr);
  };
  while (engine.Step(w.clock.Now()) != kNever) {
  }
  EXPECT_TRUE(refused);
  EXPECT_EQ(w.Read(*first).text, "ababab");
  EXPECT_EQ(w.Read(*second).text, "ababab");
}

TEST(EngineTest, PreemptedAnswersAreTheSameAsUndisturbedOnes) {
  // Four sequences of up to 5 blocks in a pool of 6: most are preempted on the way.
  World w(R"({"kv_blocks": 6, "replies": [{"pieces": ["ab", "cd", "e"], "repeat": 80}]})",
          {.waiting_max = 4, .check_integrity = true, .room_ahead = false});
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(*w.engine.Submit(w.Request(std::string(60, 'p')), nullptr));
  w.Run();
  EXPECT_GT(w.engine.stats().preemptions.load(), 0u);
  std::string expected;
  for (int i = 0; i < 80; ++i) expected += "abcde";
  for (auto& stream : streams) EXPECT_EQ(w.Read(*stream).text, expected);
}

TEST(EngineTest, WhatPreemptionsCostIsCountedAndSavedByLookingAhead) {
  const auto run = [](const std::string& blocks, bool room_ahead) {
    World w(R"({"kv_blocks": )" + blocks + R"(, "replies": [{"pieces": ["ab", "cd", "e"], "repeat": 80}]})",
            {.check_integrity = true, .prefix_cache = false, .room_ahead = room_ahead});
    std::vector<std::shared_ptr<EngineStream>> streams;
    for (int i = 0; i < 4; ++i) streams.push_back(*w.engine.Submit(w.Request(std::string(60, 'p')), nullptr));
    w.Run();
    return std::pair(w.engine.stats().rows.load(), w.engine.stats().recomputed_tokens.load());
  };
  const auto [rows, none] = run("40", true);
  EXPECT_EQ(none, 0u);
  const auto [more_rows, recomputed] = run("6", false);
  EXPECT_GT(recomputed, 0u);
  EXPECT_EQ(more_rows, rows + recomputed);
  EXPECT_EQ(run("6", true), std::pair(rows, none));
}

TEST(EngineTest, PromptLogprobsComeInOrderAndMaxTokensZeroIsAllowed) {
  World w(kFox);
  auto r = w.Request("hello");
  r->max_tokens = 0;
  r->prompt_logprobs = true;
  r->top_logprobs = 2;
  auto stream = *w.engine.Submit(std::move(r), nullptr);
  w.Run();
  std::string targets;
  for (SampleResult result; stream->PopLogprobs(result);) targets += static_cast<char>(result.token);
  EXPECT_EQ(targets, "ello");
  const auto a = w.Read(*stream);
  EXPECT_EQ(a.tokens, 0);
  EXPECT_EQ(a.finish, EndReason::kLength);
}

TEST(EngineTest, AStepAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted in this build";
  World w(R"({"kv_blocks": 40, "replies": [{"pieces": ["ab", "cd"], "repeat": 200}]})", {.waiting_max = 4});
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (int i = 0; i < 6; ++i) {
    // Half of it shared, so that steps adopt blocks; more than the pool holds, so that they evict and preempt.
    auto r = w.Request(std::string(150, 'p') + std::string(150, static_cast<char>('a' + i)));
    r->sampling.frequency_penalty = 0.5f;
    r->top_logprobs = 3;
    r->stops = *StopMatcher::Build(std::vector<std::string>{"never"});
    streams.push_back(*w.engine.Submit(std::move(r), nullptr));
  }
  w.Run(20);  // prompts are in, vectors have their size
  counting = true;
  w.Run(300);
  counting = false;
  EXPECT_EQ(allocations, 0u);
  w.Run();
}

TEST(EngineTest, AStepWithDraftsAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted in this build";
  World w(R"({"context": 1024, "kv_blocks": 60, "drafts_max": 15,
              "replies": [{"pieces": ["abcdefg"], "bytes": true, "repeat": 60}]})",
          {.waiting_max = 4, .drafts_max = 15});
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (int i = 0; i < 6; ++i) {
    auto r = w.Request(std::string(200, static_cast<char>('a' + i)));
    r->sampling.frequency_penalty = 0.5f;
    r->top_logprobs = 3;
    r->min_tokens = 100;
    streams.push_back(*w.engine.Submit(std::move(r), nullptr));
  }
  w.Run(10);
  counting = true;
  w.Run(60);
  counting = false;
  EXPECT_EQ(allocations, 0u);
  EXPECT_GT(w.engine.stats().accepted_tokens.load(), 500u);
  w.Run();
  for (auto& stream : streams) EXPECT_EQ(w.Read(*stream).tokens, 420);
}

TEST(EngineTest, AStepThatRestoresAllocatesNothing) {
  if (!kCountsAllocations) GTEST_SKIP() << "allocations are not counted in this build";
  SecondTier tier{.memory = *MemoryTier::Make(200 * 512, 512)};
  VirtualClock clock;
  Script script;  // without replies: those allocate
  script.kv_blocks = 40;
  ScriptedExecutor executor(script, [&](TimeNs t) { clock.Advance(t); });
  const auto tokenizer = ScriptTokenizer(script);
  Engine engine(executor, *tokenizer, clock, {.waiting_max = 8, .second_tier = &tier});
  std::vector<std::shared_ptr<EngineStream>> streams;
  const auto submit = [&](const std::string& prompt, int64_t tokens) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt.assign(prompt.begin(), prompt.end());
    r->max_tokens = tokens;
    r->ignore_eos = true;
    streams.push_back(*engine.Submit(std::move(r), nullptr));
  };
  const auto run = [&](int steps) {
    for (int i = 0; i < steps && engine.Step(clock.Now()) != kNever; ++i) {
    }
  };
  for (uint64_t i = 0; i < 8; ++i) submit(Letters(i, 30), 20);  // the executor's vectors have their size
  run(1000);
  const std::string shared = Letters(1, 1200);
  for (uint64_t i = 0; i < 3; ++i) {
    submit(shared, 5);
    run(1000);
    submit(Letters(10 + i, 2400), 5);  // takes the whole pool
    run(1000);
  }
  for (uint64_t i = 0; i < 6; ++i) submit(shared + Letters(50 + i, 100), 300);
  const uint64_t restored = tier.memory->stats().restored.load();
  run(1);  // takes them in
  counting = true;
  run(300);
  counting = false;
  EXPECT_EQ(allocations, 0u);
  EXPECT_GT(tier.memory->stats().restored.load(), restored);
  run(10'000);
}

}  // namespace
}  // namespace headrace
