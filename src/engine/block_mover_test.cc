// Goal: what the pool gave up comes back from host memory or disk, to the bit, also after a restart; where it is
// damaged, gone, late or slower than computing, it is computed; others go on meanwhile; a cancel or preemption in the
// middle leaves nothing behind; and what many wait for is read once. The scripted executor's blocks hold the tokens
// that were computed into them, and its answers are a function of them: a wrong block gives another answer.
#include "engine/block_mover.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/engine.h"
#include "executor/scripted/scripted_executor.h"

namespace headrace {
namespace {

// Without replies: what it says is a function of what its blocks hold.
Script MachineOf(int32_t kv_blocks = 40, int64_t prefill_us_per_token = 100) {
  Script script;
  script.kv_blocks = kv_blocks;
  script.step_us = 5000;
  script.prefill_us_per_token = prefill_us_per_token;
  return script;
}
constexpr uint64_t kBlockBytes = 512;  // of the scripted executor

struct TierSpec {
  int memory_blocks = 0;
  int disk_blocks = 0;  // 0: no disk
  TimeNs disk_took = kNsPerMs;
};

// What outlives a server.
struct Machine {
  MemoryFiles files;
  DeploymentKey key = DeploymentKey::Draw();
};

SecondTier TierOf(Machine& machine, const TierSpec& spec, const Clock& clock, const ExecutorDescription& d) {
  EXPECT_EQ(d.block_bytes, kBlockBytes);
  SecondTier tier{.virtual_disk_took = spec.disk_took};
  if (spec.memory_blocks > 0)
    tier.memory = *MemoryTier::Make(static_cast<uint64_t>(spec.memory_blocks) * kBlockBytes, kBlockBytes);
  if (spec.disk_blocks > 0) {
    auto folder = BlockFolder::Open(std::make_unique<MemoryFolder>(machine.files),
                                    std::make_unique<BlockSeal>(machine.key, d.fingerprint, kBlockBytes),
                                    static_cast<uint64_t>(spec.disk_blocks) * 4096);
    EXPECT_TRUE(folder) << folder.error().message;
    tier.disk = *DiskTier::Make(std::move(*folder), clock);
  }
  return tier;
}

struct World {
  World(Machine& machine, const TierSpec& spec, const Script& script = MachineOf())
      : executor(script, [this](TimeNs t) { clock.Advance(t); }),
        tokenizer(*Tokenizer::FromVocabulary(ScriptVocabulary(script))),
        tier(TierOf(machine, spec, clock, executor.Describe())),
        engine(executor, *tokenizer, clock,
               {.waiting_max = 64, .check_integrity = true, .second_tier = &tier, .cache_key = {1, 2}}) {
    clock.Set(1);
  }
  std::shared_ptr<EngineStream> Submit(const std::vector<int32_t>& prompt, int64_t tokens = 10,
                                       Band band = Band::kNormal) {
    auto r = std::make_unique<EngineRequest>();
    r->prompt = prompt;
    r->max_tokens = tokens;
    r->ignore_eos = true;
    r->place.band = band;
    r->sampling.seed = 7;
    return *engine.Submit(std::move(r), nullptr);
  }
  // False: nothing is left to do.
  bool Step() {
    const TimeNs wake = engine.Step(clock.Now());
    if (wake != kNever && wake > clock.Now()) clock.Set(wake);
    return wake != kNever;
  }
  void Run(int steps = 1'000'000) {
    for (int i = 0; i < steps && Step(); ++i) {
    }
  }
  std::vector<int32_t> Read(EngineStream& stream) {
    std::vector<int32_t> tokens;
    for (TokenEvent e; stream.Pop(e);) {
      if (e.token >= 0) tokens.push_back(e.token);
    }
    return tokens;
  }
  struct Answer {
    std::vector<int32_t> tokens;
    int64_t cached = 0;
    bool operator==(const Answer&) const = default;
  };
  Answer Ask(const std::vector<int32_t>& prompt) {
    auto stream = Submit(prompt);
    Run();
    return {Read(*stream), stream->cached_tokens()};
  }
  // Fills the pool with something else.
  void Flood(uint64_t seed);

  VirtualClock clock;
  ScriptedExecutor executor;
  std::unique_ptr<Tokenizer> tokenizer;
  SecondTier tier;
  Engine engine;
};

std::vector<int32_t> Letters(uint64_t seed, int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>('a' + KeyedRandom(seed, static_cast<uint64_t>(i)) % 26));
  return ids;
}

void World::Flood(uint64_t seed) { Ask(Letters(seed, 39 * kBlockTokens)); }

std::vector<int32_t> Truth(const std::vector<int32_t>& prompt) {
  Machine machine;
  World w(machine, {});
  return w.Ask(prompt).tokens;
}

TEST(BlockMoverTest, WhatThePoolGaveUpComesBackFromMemory) {
  Machine machine;
  World w(machine, {.memory_blocks = 100});
  const auto prompt = Letters(1, 645);
  const std::vector<int32_t> truth = Truth(prompt);
  EXPECT_EQ(w.Ask(prompt), (World::Answer{truth, 0}));
  w.Flood(2);
  const uint64_t computed = w.engine.stats().prompt_tokens.load();
  EXPECT_EQ(w.Ask(prompt), (World::Answer{truth, 640}));
  EXPECT_EQ(w.engine.stats().prompt_tokens.load() - computed, 5u);
  EXPECT_GE(w.tier.memory->stats().restored.load(), 9u);
  EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
}

TEST(BlockMoverTest, DiskKeepsItThroughARestart) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  const std::vector<int32_t> truth = Truth(prompt);
  {
    EXPECT_EQ(World(machine, {.disk_blocks = 100}).Ask(prompt), (World::Answer{truth, 0}));
  }
  EXPECT_EQ(machine.files.files.size(), 10u) << "and the answer's last block is not full";
  World w(machine, {.disk_blocks = 100});
  EXPECT_EQ(w.Ask(prompt), (World::Answer{truth, 640}));
  EXPECT_EQ(w.tier.disk->stats().restored.load(), 10u);
  EXPECT_EQ(w.tier.disk->stats().spilled.load(), 0u) << "it is there already";
}

// Each damaged block ends the prefix there: never a wrong token.
TEST(BlockMoverTest, DamagedBlocksAreComputed) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  const std::vector<int32_t> truth = Truth(prompt);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  const auto whole = machine.files.files;
  Random random(1);
  for (size_t damaged = 0; damaged < whole.size(); ++damaged) {
    machine.files.files = whole;
    auto& bytes = std::next(machine.files.files.begin(), static_cast<int64_t>(damaged))->second.bytes;
    bytes[random.Below(bytes.size())] ^= std::byte{16};
    World w(machine, {.disk_blocks = 100});
    const World::Answer answer = w.Ask(prompt);
    EXPECT_EQ(answer.tokens, truth);
    EXPECT_LT(answer.cached, 640);
    EXPECT_EQ(answer.cached % kBlockTokens, 0);
    EXPECT_EQ(w.tier.disk->stats().damaged.load(), 1u);
    EXPECT_FALSE(w.tier.disk->reading());
  }
}

TEST(BlockMoverTest, AnotherKeyOrModelServesNothing) {
  Machine machine, other;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  other.files = machine.files;
  World w(other, {.disk_blocks = 100});
  EXPECT_EQ(w.Ask(prompt), (World::Answer{Truth(prompt), 0}));
  EXPECT_EQ(w.tier.disk->folder().foreign_blocks(), 10u);
}

TEST(BlockMoverTest, OthersGoOnWhileBlocksAreRead) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  World w(machine, {.disk_blocks = 100, .disk_took = 30 * kNsPerMs});
  auto talking = w.Submit(Letters(5, 20), 200);
  w.Run(5);
  const size_t before = w.Read(*talking).size();
  auto restored = w.Submit(prompt);
  int steps = 0;
  for (std::vector<int32_t> tokens; tokens.empty() && steps < 1000; ++steps) {
    w.Step();
    tokens = w.Read(*restored);
  }
  EXPECT_GE(w.Read(*talking).size() + before, 40u) << "a token each 5 ms, for 300 ms";
  w.Run();
  EXPECT_EQ(restored->cached_tokens(), 640);
}

TEST(BlockMoverTest, WhatManyWaitForIsReadOnce) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  World w(machine, {.disk_blocks = 100});
  std::vector<std::shared_ptr<EngineStream>> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(w.Submit(prompt));
  w.Run();
  for (auto& stream : streams) {
    EXPECT_EQ(w.Read(*stream), Truth(prompt));
    EXPECT_EQ(stream->cached_tokens(), 640);
  }
  EXPECT_EQ(w.tier.disk->stats().restored.load(), 10u);
}

TEST(BlockMoverTest, ACancelAtAnyMomentFreesEverything) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  for (int steps = 1; steps < 20; ++steps) {
    World w(machine, {.disk_blocks = 100, .disk_took = 3 * kNsPerMs});
    auto cancelled = w.Submit(prompt), next = w.Submit(prompt);
    w.Run(steps);
    cancelled->Cancel();
    w.Run();
    EXPECT_EQ(w.Read(*next), Truth(prompt)) << "who waited for the same blocks";
    EXPECT_EQ(w.engine.stats().kv_blocks_used.load(), 0);
    EXPECT_EQ(w.engine.inside(), 0);
    w.clock.Advance(kNsPerSecond);
    w.Step();
    EXPECT_FALSE(w.tier.disk->reading()) << "a buffer was lost";
  }
}

TEST(BlockMoverTest, AnUrgentRequestTakesTheBlocksOfOneThatWaits) {
  Machine machine;
  const auto prompt = Letters(1, 20 * kBlockTokens + 5), urgent = Letters(2, 30 * kBlockTokens);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  World w(machine, {.disk_blocks = 100, .disk_took = 4 * kNsPerMs});
  auto waiting = w.Submit(prompt);
  w.Run(4);
  auto first = w.Submit(urgent, 10, Band::kHigh);
  w.Run();
  EXPECT_EQ(w.engine.stats().preemptions.load(), 1u);
  EXPECT_EQ(w.Read(*first), Truth(urgent));
  EXPECT_EQ(w.Read(*waiting), Truth(prompt));
  EXPECT_GT(waiting->cached_tokens(), 0);
}

// A preempted sequence gets back what it had, its answer's blocks included.
TEST(BlockMoverTest, APreemptedSequenceIsRestored) {
  Machine machine;
  World w(machine, {.memory_blocks = 100}, MachineOf(8, 1000));
  const auto prompt = Letters(1, 190);
  auto preempted = w.Submit(prompt, 150, Band::kBatch);
  w.Run(120);
  auto urgent = w.Submit(Letters(2, 7 * kBlockTokens - 20), 10, Band::kHigh);
  w.Run();
  EXPECT_EQ(w.engine.stats().preemptions.load(), 1u);
  EXPECT_GE(w.tier.memory->stats().restored.load(), 3u);
  Machine empty;
  World undisturbed(empty, {}, MachineOf(8, 1000));
  auto truth = undisturbed.Submit(prompt, 150);
  undisturbed.Run();
  EXPECT_EQ(w.Read(*preempted), undisturbed.Read(*truth));
  EXPECT_EQ(w.Read(*urgent).size(), 10u);
}

TEST(BlockMoverTest, ASlowDiskIsNotUsedAndTriedAgainLater) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 1000}).Ask(prompt);
  }
  World w(machine, {.disk_blocks = 1000, .disk_took = 40 * kNsPerMs});  // computing a block takes 6.4 ms
  EXPECT_EQ(w.Ask(prompt).cached, 640) << "nothing was measured yet";
  w.Flood(2);
  EXPECT_EQ(w.Ask(prompt).cached, 0);
  EXPECT_EQ(w.tier.disk->stats().declined.load(), 10u);
  int64_t cached = 0;
  int asked = 0;
  for (; asked < 400 && cached == 0; ++asked) {
    w.Flood(2);
    cached = w.Ask(prompt).cached;
  }
  EXPECT_EQ(cached, 640);
  EXPECT_GT(asked, 20);
}

TEST(BlockMoverTest, ADiskThatDoesNotAnswerIsNotWaitedForForEver) {
  Machine machine;
  const auto prompt = Letters(1, 645);
  {
    World(machine, {.disk_blocks = 100}).Ask(prompt);
  }
  World w(machine, {.disk_blocks = 100, .disk_took = 3600 * kNsPerSecond});
  EXPECT_EQ(w.Ask(prompt), (World::Answer{Truth(prompt), 0}));
  EXPECT_LT(w.clock.Now(), 2 * BlockMover::kRestoreMax);
}

TEST(BlockMoverTest, AFullDiskChangesNothing) {
  Machine machine;
  machine.files.full = true;
  World w(machine, {.disk_blocks = 100});
  const auto prompt = Letters(1, 645);
  EXPECT_EQ(w.Ask(prompt).tokens, Truth(prompt));
  w.Flood(2);
  EXPECT_EQ(w.Ask(prompt).tokens, Truth(prompt));
  EXPECT_GT(w.tier.disk->stats().failed.load(), 0u);
}

TEST(BlockMoverTest, MemoryAndDiskTogether) {
  Machine machine;
  World w(machine, {.memory_blocks = 6, .disk_blocks = 200});
  const auto prompt = Letters(1, 20 * kBlockTokens + 5);
  const std::vector<int32_t> truth = Truth(prompt);
  for (uint64_t i = 2; i < 6; ++i) {
    EXPECT_EQ(w.Ask(prompt).tokens, truth);
    w.Flood(i);
  }
  EXPECT_EQ(w.Ask(prompt), (World::Answer{truth, 20 * kBlockTokens}));
  EXPECT_GT(w.tier.disk->stats().restored.load(), 0u);
}

}  // namespace
}  // namespace headrace
