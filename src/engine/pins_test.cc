// Goal: a prompt with a retention is still a hit after a flood that evicts its twin, until its time, which each later
// request with a retention puts off; whoever runs takes its blocks rather than wait, be refused or preempt; what the
// pool gives up while it is pinned stays in the tiers; and cancels and preemptions leave everything whole.
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/scripted_executor.h"

namespace headrace {
namespace {

constexpr uint64_t kBlockBytes = 512;  // of the scripted executor

Script MachineOf(int32_t kv_blocks) {
  Script script;  // without replies: what it says is a function of what its blocks hold
  script.kv_blocks = kv_blocks;
  return script;
}

std::vector<int32_t> Letters(uint64_t seed, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>('a' + KeyedRandom(seed, static_cast<uint64_t>(i)) % 26));
  return ids;
}

struct World {
  explicit World(int32_t kv_blocks = 40, SecondTier below = {}, bool prefix_cache = true)
      : script(MachineOf(kv_blocks)),
        executor(script, [this](TimeNs t) { clock.Advance(t); }),
        tokenizer(*Tokenizer::FromVocabulary(ScriptVocabulary(script))),
        tier(std::move(below)),
        engine(executor, *tokenizer, clock,
               {.waiting_max = 64, .check_integrity = true, .prefix_cache = prefix_cache, .second_tier = &tier}) {
    clock.Set(kNsPerMinute);
  }
  std::shared_ptr<EngineStream> Submit(const std::vector<int32_t>& prompt, TimeNs retention = 0, int64_t tokens = 5,
                                       Band band = Band::kNormal) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt = prompt;
    r->max_tokens = tokens;
    r->ignore_eos = true;
    r->keep_prompt = retention;
    r->place.band = band;
    r->sampling.seed = 7;
    return *engine.Submit(std::move(r), nullptr);
  }
  void Run(int steps = 1'000'000) {
    for (int i = 0; i < steps; ++i) {
      const TimeNs wake = engine.Step(clock.Now());
      if (wake == kNever) return;
      if (wake > clock.Now()) clock.Set(wake);
    }
  }
  std::vector<int32_t> Read(EngineStream& stream) {
    std::vector<int32_t> tokens;
    for (TokenEvent e; stream.Pop(e);) {
      if (e.token >= 0) tokens.push_back(e.token);
    }
    return tokens;
  }
  // Prompt tokens that came from the cache.
  int64_t Ask(const std::vector<int32_t>& prompt, TimeNs retention = 0) {
    auto stream = Submit(prompt, retention);
    Run();
    EXPECT_EQ(Read(*stream).size(), 5u);
    return stream->cached_tokens();
  }
  // More than the pool holds, never much at once.
  void Flood(uint64_t seed) {
    for (uint64_t i = 0; i < 8; ++i) Ask(Letters(1000 * seed + i, 12 * kBlockTokens));
  }
  // Until so long after the beginning.
  void Wait(int64_t seconds) { clock.Set((60 + seconds) * kNsPerSecond); }
  int32_t pinned() const { return engine.stats().pinned_blocks.load(); }

  VirtualClock clock;
  const Script script;
  ScriptedExecutor executor;
  std::unique_ptr<Tokenizer> tokenizer;
  SecondTier tier;
  Engine engine;
};

const std::vector<int32_t> kPrompt = Letters(1, 645);  // ten whole blocks

TEST(EnginePinsTest, APinnedPromptOutlivesAFloodThatEvictsItsTwin) {
  World w;
  const auto twin = Letters(2, 645);
  EXPECT_EQ(w.Ask(kPrompt, kNsPerMinute), 0);
  EXPECT_EQ(w.Ask(twin), 0);
  EXPECT_EQ(w.pinned(), 10) << "and of its answer nothing";
  w.Flood(1);
  EXPECT_EQ(w.Ask(kPrompt), 640);
  EXPECT_EQ(w.Ask(twin), 0);
  w.Wait(70);
  EXPECT_EQ(w.Ask(kPrompt, kNsPerMinute), 640) << "and it has a minute from here, which is rounded up";
  w.Wait(170);
  w.Flood(2);
  EXPECT_EQ(w.Ask(kPrompt), 640);
  w.Wait(180);
  w.Flood(3);
  EXPECT_EQ(w.pinned(), 0);
  w.Flood(4);
  EXPECT_LT(w.Ask(kPrompt), 640) << "it goes like others that were wanted so often";
  EXPECT_EQ(w.engine.stats().pins_refused.load(), 0u);
}

TEST(EnginePinsTest, WithoutAPrefixCacheItChangesNothing) {
  World w(40, {}, false);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(w.Ask(kPrompt, kNsPerMinute), 0);
  EXPECT_EQ(w.pinned(), 0);
  EXPECT_EQ(w.engine.stats().pins_refused.load(), 0u);
}

TEST(EnginePinsTest, WhoRunsTakesPinnedBlocks) {
  uint64_t steps[2] = {};
  for (const bool pinned : {false, true}) {
    World w;
    w.Ask(Letters(2, 20 * kBlockTokens + 1), pinned ? kNsPerMinute : 0);
    EXPECT_EQ(w.pinned(), pinned ? 20 : 0);
    const uint64_t before = w.engine.stats().steps.load();
    auto first = w.Submit(Letters(3, 25 * kBlockTokens)), second = w.Submit(Letters(4, 12 * kBlockTokens));
    w.Run();
    EXPECT_EQ(w.Read(*first).size() + w.Read(*second).size(), 10u);
    EXPECT_EQ(w.engine.stats().preemptions.load(), 0u);
    EXPECT_EQ(w.Ask(Letters(5, 38 * kBlockTokens)), 0);
    EXPECT_EQ(w.engine.stats().preemptions.load(), 0u);
    EXPECT_LE(w.pinned(), 1) << "39 blocks were in use";
    steps[pinned ? 1 : 0] = w.engine.stats().steps.load() - before;
  }
  EXPECT_EQ(steps[1], steps[0]);
}

TEST(EnginePinsTest, BeyondHalfOfThePoolAPinIsRefusedAndTheRequestServed) {
  World w;
  EXPECT_EQ(w.Ask(kPrompt, kNsPerMinute), 0);
  EXPECT_EQ(w.Ask(Letters(2, 15 * kBlockTokens + 1), kNsPerMinute), 0);
  EXPECT_EQ(w.pinned(), 20);
  EXPECT_EQ(w.engine.stats().pins_refused.load(), 5u);
  w.Flood(1);
  EXPECT_EQ(w.Ask(Letters(2, 15 * kBlockTokens + 1)), 10 * kBlockTokens) << "its beginning was pinned";
  EXPECT_EQ(w.Ask(kPrompt), 640);
}

TEST(EnginePinsTest, TheTiersKeepWhatIsPinnedToo) {
  for (const bool waits : {false, true}) {
    World w(40, {.memory = *MemoryTier::Make(24 * kBlockBytes, kBlockBytes)});
    w.Ask(kPrompt, kNsPerMinute);
    w.Ask(Letters(2, 39 * kBlockTokens));  // takes the whole pool, pins or not
    EXPECT_EQ(w.pinned(), 0);
    EXPECT_EQ(w.tier.memory->stats().pinned.load(), 10);
    if (waits) w.Wait(120);
    for (uint64_t i = 0; i < 6; ++i) w.Ask(Letters(10 + i, 39 * kBlockTokens));
    EXPECT_EQ(w.Ask(kPrompt), waits ? 0 : 640);
  }
}

TEST(EnginePinsTest, WhatTheDiskHasIsPinnedWithThePoolsBlocks) {
  MemoryFiles files;
  const DeploymentKey key = DeploymentKey::Draw();
  VirtualClock time;
  SecondTier tier{.virtual_disk_took = kNsPerMs};
  auto folder =
      BlockFolder::Open(std::make_unique<MemoryFolder>(files),
                        std::make_unique<BlockSeal>(
                            key, ScriptedExecutor(MachineOf(40), [](TimeNs) {}).Describe().fingerprint, kBlockBytes),
                        60 * 4096);
  ASSERT_TRUE(folder) << folder.error().message;
  tier.disk = *DiskTier::Make(std::move(*folder), time);
  World w(40, std::move(tier));
  w.Ask(kPrompt, kNsPerMinute);
  EXPECT_EQ(w.tier.disk->stats().pinned.load(), 10);
  EXPECT_EQ(w.tier.disk->index().used(), 10);
  w.Wait(70);
  w.Ask(kPrompt, kNsPerMinute);
  for (const bool over : {false, true}) {
    w.Wait(over ? 180 : 179);
    TierIndex index = w.tier.disk->index();
    EXPECT_EQ(index.LeastWanted(w.clock.Now()) >= 0, over) << "it holds nothing else";
    w.Run();
    EXPECT_EQ(w.tier.disk->stats().pinned.load(), over ? 0 : 10) << "which a step finds out";
  }
}

TEST(EnginePinsTest, CancelsAndPreemptionsLeaveEverythingWhole) {
  uint64_t preemptions = 0, refused = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    World w(14);
    std::vector<std::shared_ptr<EngineStream>> streams;
    for (int i = 0; i < 60; ++i) {
      streams.push_back(w.Submit(Letters(random.Below(6), 60 + static_cast<int64_t>(random.Below(500))),
                                 static_cast<TimeNs>(random.Below(4)) * kNsPerSecond / 2, 100,
                                 random.Below(4) == 0 ? Band::kHigh : Band::kBatch));
      w.Run(static_cast<int>(random.Below(40)));
      if (random.Below(3) == 0) streams[random.Below(streams.size())]->Cancel();
      EXPECT_LE(w.pinned(), 7);
    }
    w.Run();
    EXPECT_EQ(w.engine.inside(), 0);
    EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
    preemptions += w.engine.stats().preemptions.load();
    refused += w.engine.stats().pins_refused.load();
    w.clock.Advance(2 * kNsPerMinute);
    w.Run();
    EXPECT_EQ(w.pinned(), 0);
  }
  EXPECT_GT(preemptions, 20u);
  EXPECT_GT(refused, 20u);
}

}  // namespace
}  // namespace headrace
