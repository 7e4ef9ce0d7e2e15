// Goal: a prompt is computed once for all who may share it, also when they come together, and for nobody else; what is
// pinned outlives a flood; waiting for another's blocks never hangs; with room for everything the hits are an oracle's.
#include <gtest/gtest.h>

#include <set>

#include "engine/test_world.h"

namespace headrace {
namespace {

// prompt_cache_retention: a flood takes the unpinned twin's blocks and leaves the pinned prompt's, for its time.
TEST(PrefixCacheTest, APromptIsKeptForItsTime) {
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

TEST(PrefixCacheTest, APromptIsComputedOnceForAllOfATenantAndForNoOther) {
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

TEST(PrefixCacheTest, WhoArrivesTogetherComputesTheSharedPartOnce) {
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
TEST(PrefixCacheTest, WaitingForAnothersBlocksNeverHangs) {
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

// Blocks that a batch answer found in the cache did not count as room for an urgent prompt, which so was not let in;
// and while it was in line the batch answer rested. Neither ever ended.
TEST(PrefixCacheTest, AnUrgentPromptIsLetInBesideBatchWorkThatCameFromTheCache) {
  World w(R"({"kv_blocks": 12, "replies": [{"pieces": ["x"], "repeat": 100}]})");
  const std::string shared = Letters(1, 450);
  EXPECT_EQ(w.Ask(w.Request(shared)).tokens, 100);
  auto batch = w.Request(shared), urgent = w.Request(Letters(2, 500));
  batch->place.band = Band::kBatch;
  urgent->place.band = Band::kHigh;
  batch->max_tokens = urgent->max_tokens = 100;
  auto first = *w.engine.Submit(std::move(batch), nullptr);
  w.Run(5);
  EXPECT_EQ(w.engine.stats().running.load(), 1);
  auto second = *w.engine.Submit(std::move(urgent), nullptr);
  w.Run(10'000);
  EXPECT_EQ(w.engine.inside(), 0);
  EXPECT_EQ(w.Read(*first).tokens + w.Read(*second).tokens, 200);
}

// With room for everything hits equal an oracle's exactly: random trees of prompts, one request after another, and the
// answers themselves can be continued.
TEST(PrefixCacheTest, WithRoomForEverythingHitsAreTheOracles) {
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
