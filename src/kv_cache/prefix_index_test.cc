// Goal: a prefix that is cached is found, whole and only by those who may; names are the published hash; equal names
// with other ids are no hit; eviction takes leaves and never what is in use; with room for everything the hits are an
// oracle's to the block; and nothing leaks under random traffic. Prints what a match costs.
#include "kv_cache/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>

#include "base/random.h"
#include "kv_cache/block_pool.h"

namespace headrace {
namespace {

constexpr BlockKey kKey{1, 2};

struct Text {
  explicit Text(std::vector<int32_t> ids, const std::string& name_space = "")
      : tokens(std::move(ids)), chain(kKey, RootName(kKey, "bits", "", name_space), tokens, std::ssize(tokens)) {}
  const std::vector<int32_t> tokens;
  BlockChain chain;
};

std::vector<int32_t> Ids(int64_t count, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(KeyedRandom(seed, static_cast<uint64_t>(i)) % 50'000));
  return ids;
}

// Computes a text that nobody else is computing; returns the blocks that came from the cache.
int64_t Compute(BlockTable& table, const Text& text) {
  const int64_t hits = table.Adopt(text.chain, (std::ssize(text.tokens) - 1) / kBlockTokens, false);
  EXPECT_TRUE(table.GrowTo(std::ssize(text.tokens)));
  table.Publish(text.chain, text.chain.blocks());
  return hits;
}

// The vectors of the reference implementation: key 00 01 .. 0f, message 00 01 02 ...
TEST(BlockNameTest, IsSipHash24With128Bits) {
  const BlockKey key{0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};
  std::vector<std::byte> message;
  const auto hash = [&] {
    const BlockName name = SipHash128(key, message);
    std::string hex;
    for (const uint64_t half : {name.low, name.high}) {
      for (int byte = 0; byte < 8; ++byte) {
        char text[3];
        std::snprintf(text, sizeof(text), "%02x", static_cast<unsigned>(half >> (8 * byte) & 0xff));
        hex += text;
      }
    }
    return hex;
  };
  EXPECT_EQ(hash(), "a3817f04ba25a8e66df67214c7550293");
  message.push_back(std::byte{0});
  EXPECT_EQ(hash(), "da87c1d86b99af44347659119b22fc45");
  for (int i = 1; i < 63; ++i) message.push_back(static_cast<std::byte>(i));
  EXPECT_EQ(hash(), "5150d1772f50834a503e069a973fbd7c");
}

TEST(BlockNameTest, EverythingThatDecidesTheBitsOrTheReadersIsInIt) {
  const std::vector<int32_t> ids = Ids(kBlockTokens, 1);
  std::set<std::pair<uint64_t, uint64_t>> names;
  const auto add = [&](const BlockKey& key, const BlockName& root, const std::vector<int32_t>& tokens) {
    const BlockName name = NameOfBlock(key, root, BlockIds(tokens.data(), kBlockTokens));
    names.insert({name.low, name.high});
  };
  add(kKey, RootName(kKey, "bits", "", "a"), ids);
  add(kKey, RootName(kKey, "other", "", "a"), ids);
  add(kKey, RootName(kKey, "bits", "lora", "a"), ids);
  add(kKey, RootName(kKey, "bits", "", "b"), ids);
  add(kKey, RootName(kKey, "bits", "a", ""), ids);
  add(kKey, RootName(kKey, "bit", "s", "a"), ids);
  add({1, 3}, RootName(kKey, "bits", "", "a"), ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<int32_t> other = ids;
    other[i] ^= 1;
    add(kKey, RootName(kKey, "bits", "", "a"), other);
  }
  EXPECT_EQ(names.size(), 7u + kBlockTokens);
}

TEST(PrefixIndexTest, EqualNamesWithOtherIdsAreNoHit) {
  PrefixIndex index(4);
  const std::vector<int32_t> mine = Ids(kBlockTokens, 1), forged = Ids(kBlockTokens, 2);
  const BlockName name{5, 6};
  ASSERT_TRUE(index.Publish(0, -1, name, BlockIds(mine.data(), kBlockTokens)));
  EXPECT_EQ(index.Find(-1, name, BlockIds(mine.data(), kBlockTokens)), 0);
  EXPECT_EQ(index.Find(-1, name, BlockIds(forged.data(), kBlockTokens)), -1);
  EXPECT_EQ(index.Find(0, name, BlockIds(mine.data(), kBlockTokens)), -1) << "another parent";
  EXPECT_FALSE(index.Publish(1, -1, name, BlockIds(forged.data(), kBlockTokens)));
  EXPECT_FALSE(index.named(1));
}

TEST(PrefixCacheTest, SharesWithoutCopiesAndOnlyInsideANamespace) {
  BlockPool pool(100, true);
  const Text first(Ids(640, 1), "a"), same(Ids(700, 1), "a"), stranger(Ids(640, 1), "b");
  BlockTable one(pool, 20), two(pool, 20), three(pool, 20);
  EXPECT_EQ(Compute(one, first), 0);
  EXPECT_EQ(Compute(two, same), 10);
  EXPECT_TRUE(std::ranges::equal(one.blocks(), std::span(two.blocks()).first(10)));
  EXPECT_EQ(Compute(three, stranger), 0);
  EXPECT_EQ(pool.used_blocks(), 10 + 1 + 10);
  CheckPoolIntegrity(pool, {&one, &two, &three});
}

TEST(PrefixCacheTest, TwoThatComputeTheSameAtOnceEndWithOneCopy) {
  BlockPool pool(100, true);
  const Text text(Ids(650, 1)), longer(Ids(720, 1));
  BlockTable one(pool, 20), two(pool, 20);
  ASSERT_TRUE(one.GrowTo(650) && two.GrowTo(720));
  one.Publish(text.chain, 4);
  two.Publish(longer.chain, 11);
  one.Publish(text.chain, 10);
  EXPECT_EQ(pool.used_blocks(), 11 + 2) << "and a block for each tail";
  CheckPoolIntegrity(pool, {&one, &two});
}

TEST(PrefixCacheTest, LeavesGoFirstAndWhatIsInUseStays) {
  BlockPool pool(12, true);
  const Text kept(Ids(256, 1)), idle(Ids(256, 2)), incoming(Ids(320, 3));
  BlockTable holder(pool, 12);
  Compute(holder, kept);
  {
    BlockTable table(pool, 12);
    Compute(table, idle);
  }
  BlockTable table(pool, 12);
  ASSERT_TRUE(table.GrowTo(320));  // four free blocks and one evicted
  EXPECT_EQ(pool.evictions(), 1u);
  EXPECT_EQ(pool.Peek(idle.chain, 4).blocks, 3) << "the last block of the idle text went";
  EXPECT_EQ(pool.Peek(kept.chain, 4).in_use, 4);
  EXPECT_FALSE(table.GrowTo(9 * kBlockTokens)) << "four blocks are in use";
  ASSERT_TRUE(table.GrowTo(8 * kBlockTokens));
  EXPECT_EQ(pool.Peek(idle.chain, 4).blocks, 0);
  CheckPoolIntegrity(pool, {&holder, &table});
}

// A text continues a random earlier one from a random place, or begins anew.
std::vector<int32_t> RandomText(Random& random, const std::vector<std::vector<int32_t>>& texts) {
  std::vector<int32_t> ids;
  if (!texts.empty() && random.Below(5) != 0) {
    const std::vector<int32_t>& from = texts[random.Below(texts.size())];
    ids.assign(from.begin(), from.begin() + static_cast<int64_t>(random.Below(from.size() + 1)));
  }
  for (uint64_t more = 1 + random.Below(300); more > 0; --more) ids.push_back(static_cast<int32_t>(random.Below(3)));
  return ids;
}

TEST(PrefixCacheTest, WithRoomForEverythingHitsAreTheOracles) {
  Random random(11);
  BlockPool pool(20'000, true);
  std::set<std::vector<int32_t>> known;  // every prefix of whole blocks
  std::vector<std::vector<int32_t>> texts;
  int64_t hits = 0;
  for (int i = 0; i < 1500; ++i) {
    texts.push_back(RandomText(random, texts));
    const Text text(texts.back());
    int64_t expected = 0;
    for (int64_t block = 1; block * kBlockTokens < std::ssize(text.tokens); ++block) {
      if (!known.contains({text.tokens.begin(), text.tokens.begin() + block * kBlockTokens})) break;
      expected = block;
    }
    BlockTable table(pool, 2000);
    const int64_t got = Compute(table, text);
    ASSERT_EQ(got, expected) << "text " << i;
    hits += got;
    for (int64_t block = 1; block * kBlockTokens <= std::ssize(text.tokens); ++block)
      known.insert({text.tokens.begin(), text.tokens.begin() + block * kBlockTokens});
  }
  EXPECT_GT(hits, 1000);
  EXPECT_EQ(pool.evictions(), 0u);
  CheckPoolIntegrity(pool, {});
}

TEST(PrefixCacheTest, RandomTrafficInASmallPoolLosesNoBlock) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    BlockPool pool(40, true);
    std::vector<std::vector<int32_t>> texts;
    std::vector<std::pair<std::unique_ptr<Text>, std::unique_ptr<BlockTable>>> open;
    for (int step = 0; step < 600; ++step) {
      if (open.size() < 6 && random.Below(2) == 0) {
        texts.push_back(RandomText(random, texts));
        if (texts.back().size() > 600) texts.back().resize(600);
        open.emplace_back(std::make_unique<Text>(texts.back()), std::make_unique<BlockTable>(pool, 10));
        open.back().second->Adopt(open.back().first->chain, (std::ssize(texts.back()) - 1) / kBlockTokens,
                                  random.Below(4) == 0);
      } else if (!open.empty()) {
        const auto at = open.begin() + static_cast<int64_t>(random.Below(open.size()));
        auto& [text, table] = *at;
        const int64_t tokens =
            std::min(std::ssize(text->tokens), table->capacity_tokens() + static_cast<int64_t>(random.Below(200)));
        if (random.Below(5) == 0 || !table->GrowTo(tokens)) {
          open.erase(at);
        } else {
          table->Publish(text->chain, tokens / kBlockTokens);
        }
      }
      std::vector<const BlockTable*> tables;
      for (const auto& [text, table] : open) tables.push_back(table.get());
      CheckPoolIntegrity(pool, tables);
    }
    open.clear();
    EXPECT_EQ(pool.used_blocks(), 0);
    EXPECT_GT(pool.evictions(), 0u);
  }
}

TEST(PrefixCacheTest, AMatchOf4096Tokens) {
  // No gate on wall-clock time; the figures are printed for the campaign. Goal: 20 us.
  constexpr int kTexts = 200;
  BlockPool pool(kTexts * 64, true);
  std::vector<std::unique_ptr<Text>> texts;
  for (int i = 0; i < kTexts; ++i) {
    texts.push_back(std::make_unique<Text>(Ids(4097, static_cast<uint64_t>(i))));
    BlockTable table(pool, 65);
    table.Adopt(texts.back()->chain, 64, false);
    if (table.GrowTo(4096)) table.Publish(texts.back()->chain, 64);
  }
  std::vector<double> match_us, adopt_us, name_us;
  for (int i = 0; i < kTexts; ++i) {
    const auto us = [](auto from) {
      return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - from).count();
    };
    const Text& text = *texts[static_cast<size_t>(i * 77 % kTexts)];
    BlockTable table(pool, 65);
    auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(pool.Peek(text.chain, 64).blocks, 64);
    match_us.push_back(us(begin));
    begin = std::chrono::steady_clock::now();
    EXPECT_EQ(table.Adopt(text.chain, 64, false), 64);
    adopt_us.push_back(us(begin));
    begin = std::chrono::steady_clock::now();
    const BlockChain again(kKey, {}, text.tokens, 4097);
    name_us.push_back(us(begin));
  }
  for (auto* times : {&match_us, &adopt_us, &name_us}) std::ranges::sort(*times);
  std::printf("4,096 tokens, %d blocks cached: match %.1f us, taking them %.1f us, naming them %.1f us (medians)\n",
              pool.cached_blocks(), match_us[kTexts / 2], adopt_us[kTexts / 2], name_us[kTexts / 2]);
}

}  // namespace
}  // namespace headrace
