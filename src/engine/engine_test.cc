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
#include "executor/scripted/scripted_executor.h"

namespace headrace {
namespace {

std::unique_ptr<Tokenizer> ScriptTokenizer(const Script& script) {
  auto tokenizer = Tokenizer::FromVocabulary(ScriptVocabulary(script));
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return std::move(*tokenizer);
}

struct World {
  explicit World(const std::string& json, EngineOptions options = {.waiting_max = 4, .check_integrity = true})
      : script(*ParseScript(json)),
        executor(script, [this](TimeNs t) { clock.Advance(t); }),
        tokenizer(ScriptTokenizer(script)),
        engine(executor, *tokenizer, clock, options) {
    clock.Set(1);
  }
  std::unique_ptr<EngineRequest> Request(const std::string& prompt) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt.assign(prompt.begin(), prompt.end());
    return r;
  }
  // Steps until nothing is left to do.
  void Run(int steps = 100'000) {
    for (int i = 0; i < steps && engine.Step(clock.Now()) != kNever; ++i) {
    }
  }
  struct Answer {
    std::string text;  // released at the end
    int tokens = 0;
    EndReason finish = EndReason::kNone;
  };
  Answer Read(EngineStream& stream) {
    Answer a;
    std::string all;
    uint32_t released = 0;
    for (TokenEvent e; stream.Pop(e);) {
      EXPECT_EQ(a.finish, EndReason::kNone) << "an event after the finish";
      if (e.token >= 0) {
        ++a.tokens;
        if (!tokenizer->IsControl(e.token)) all += tokenizer->TokenBytes(e.token);
      }
      EXPECT_GE(e.released_bytes, released) << "released text was taken back";
      released = e.released_bytes;
      a.finish = e.finish;
    }
    a.text = all.substr(0, released);
    return a;
  }
  Answer Ask(std::unique_ptr<EngineRequest> request) {
    auto stream = engine.Submit(std::move(request), nullptr);
    EXPECT_TRUE(stream);
    Run();
    return Read(**stream);
  }

  VirtualClock clock;
  Script script;
  ScriptedExecutor executor;
  std::unique_ptr<Tokenizer> tokenizer;
  Engine engine;
};

constexpr char kFox[] = R"({"replies": [{"pieces": ["The", " qui", "ck br", "own", " fox"]}]})";

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

std::string Letters(uint64_t seed, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += static_cast<char>('a' + KeyedRandom(seed, i) % 26);
  return text;
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

// prompt_cache_retention: a flood takes the unpinned twin's blocks and leaves the pinned prompt's, for its time.
TEST(EngineTest, APromptIsKeptForItsTime) {
  World w(R"({"kv_blocks": 60, "replies": [{"pieces": ["x"]}]})");
  const auto cached = [&](const std::string& prompt, TimeNs keep = 0) {
    auto r = w.Request(prompt);
    r->keep_prompt = keep;
    auto stream = *w.engine.Submit(std::move(r), nullptr);
    w.Run();
    return stream->cached_tokens();
  };
  const auto flood = [&] {
    for (uint64_t i = 0; i < 40; ++i) (void)cached(Letters(static_cast<uint64_t>(w.clock.Now()) + i, 640));
  };
  const std::string kept = Letters(1, 700), twin = Letters(2, 700);
  EXPECT_EQ(cached(kept, kNsPerMinute), 0);
  EXPECT_EQ(cached(twin), 0);
  EXPECT_EQ(w.engine.stats().pinned_blocks.load(), 10);
  flood();
  EXPECT_EQ(cached(kept), 640);
  EXPECT_EQ(cached(twin), 0);
  w.clock.Advance(2 * kNsPerMinute);
  flood();
  EXPECT_EQ(w.engine.stats().pinned_blocks.load(), 0);
}

TEST(EngineTest, APromptIsComputedOnceForAllOfATenantAndForNoOther) {
  World w(
      R"({"kv_blocks": 60, "replies": [{"match": "one!", "pieces": ["first"]}, {"match": "two!", "pieces": ["second"]},
             {"pieces": ["neither"]}]})");
  const std::string shared = Letters(1, 640);
  const auto ask = [&](const std::string& prompt, const std::string& name_space) {
    auto r = w.Request(prompt);
    r->cache_namespace = name_space;
    auto stream = *w.engine.Submit(std::move(r), nullptr);
    w.Run();
    return std::pair(w.Read(*stream).text, stream->cached_tokens());
  };
  EXPECT_EQ(ask(shared + "one!", "a"), std::pair(std::string("first"), int64_t{0}));
  EXPECT_EQ(ask(shared + "two!", "a"), std::pair(std::string("second"), int64_t{640}));
  EXPECT_EQ(ask(shared, "a"), std::pair(std::string("neither"), int64_t{576})) << "the last token is computed";
  EXPECT_EQ(ask(shared + "one!", "b"), std::pair(std::string("first"), int64_t{0}));
  EXPECT_EQ(w.engine.stats().prefix_hit_tokens.load(), 640u + 576u);
  EXPECT_EQ(w.engine.stats().prefix_asked_tokens.load(), 644u * 3 + 640u);
  EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
  World off(kFox, {.waiting_max = 4, .check_integrity = true, .prefix_cache = false});
  for (int i = 0; i < 2; ++i) (void)off.Ask(off.Request(shared));
  EXPECT_EQ(off.engine.stats().prompt_tokens.load(), 1280u);
  EXPECT_EQ(off.engine.stats().kv_blocks_cached.load(), 0);
}

TEST(EngineTest, WhoArrivesTogetherComputesTheSharedPartOnce) {
  World w(R"({"kv_blocks": 60, "batch_tokens_max": 96, "replies": [{"pieces": ["ok"], "repeat": 5}]})");
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (int i = 0; i < 8; ++i)
    streams.push_back(*w.engine.Submit(w.Request(Letters(1, 1024) + Letters(10 + i, 30)), nullptr));
  w.Run();
  int64_t cached = 0;
  for (auto& stream : streams) {
    EXPECT_EQ(w.Read(*stream).text, "okokokokok");
    cached += stream->cached_tokens();
  }
  EXPECT_EQ(cached, 7 * 1024);
  EXPECT_EQ(w.engine.stats().prompt_tokens.load(), 1024u + 8 * 30);
}

// The one that computes what others wait for is cancelled, fails or is preempted: the next takes over.
TEST(EngineTest, WaitingForAnothersBlocksNeverHangs) {
  World w(R"({"kv_blocks": 40, "batch_tokens_max": 32,
              "replies": [{"match": "bad", "pieces": ["x"], "fault_at": 0}, {"pieces": ["ok"], "repeat": 200}]})");
  const std::string shared = Letters(2, 700);
  auto cancelled = *w.engine.Submit(w.Request(shared + "a"), nullptr);
  auto bad = *w.engine.Submit(w.Request(shared + "bad"), nullptr);
  std::vector<std::shared_ptr<EngineStream>> others;
  for (int i = 0; i < 4; ++i) others.push_back(*w.engine.Submit(w.Request(shared + Letters(20 + i, 100)), nullptr));
  w.Run(5);
  cancelled->Cancel();
  w.Run(20'000);
  EXPECT_EQ(w.engine.inside(), 0);
  EXPECT_EQ(w.Read(*bad).finish, EndReason::kError);
  for (auto& stream : others) EXPECT_EQ(w.Read(*stream).tokens, 200);
  EXPECT_LT(w.engine.stats().prompt_tokens.load(), 1500u) << "the shared part was computed about once";
}

// With room for everything hits equal an oracle's exactly: random trees of prompts, one request after another, and the
// answers themselves can be continued.
TEST(EngineTest, WithRoomForEverythingHitsAreTheOracles) {
  World w(R"({"kv_blocks": 4096, "replies": [{"pieces": ["ab", "c"], "repeat": 60}]})");
  Random random(9);
  std::vector<std::vector<int32_t>> texts;
  std::set<std::vector<int32_t>> computed;  // prefixes of whole blocks
  uint64_t hits = 0;
  for (int i = 0; i < 300; ++i) {
    auto r = w.Request("");
    if (!texts.empty() && random.Below(5) != 0) {
      const std::vector<int32_t>& from = texts[random.Below(texts.size())];
      r->prompt.assign(from.begin(), from.begin() + static_cast<int64_t>(random.Below(from.size() + 1)));
    }
    for (uint64_t more = 1 + random.Below(200); more > 0; --more)
      r->prompt.push_back(static_cast<int32_t>('a' + random.Below(3)));
    if (r->prompt.size() > 3000) continue;
    std::vector<int32_t> text = r->prompt;
    for (size_t tokens = 64; tokens < text.size(); tokens += 64) {
      if (!computed.contains({text.begin(), text.begin() + static_cast<int64_t>(tokens)})) break;
      hits += 64;
    }
    auto stream = *w.engine.Submit(std::move(r), nullptr);
    w.Run();
    for (TokenEvent e; stream->Pop(e);) {
      if (e.token >= 0) text.push_back(e.token);
    }
    // The last token that was said is known and not computed, unless the end was drawn after it.
    for (size_t tokens = 64; tokens <= text.size(); tokens += 64)
      computed.insert({text.begin(), text.begin() + static_cast<int64_t>(tokens)});
    texts.push_back(std::move(text));
  }
  EXPECT_EQ(w.engine.stats().prefix_hit_tokens.load(), hits);
  EXPECT_GT(hits, 10'000u);
  EXPECT_EQ(w.engine.stats().prefix_evictions.load(), 0u);
}

}  // namespace
}  // namespace headrace
