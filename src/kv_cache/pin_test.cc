// Goal: what is pinned outlives a flood of other prefixes until its time has come, and then goes like any other; at
// most half of the pool is; and a sequence gets its blocks though all that is idle is pinned.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "kv_cache/block_pool.h"

namespace headrace {
namespace {

constexpr BlockKey kKey{1, 2};
constexpr int32_t kBlocks = 40;

std::vector<int32_t> Ids(int64_t count, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int32_t>(KeyedRandom(seed, static_cast<uint64_t>(i)) % 50'000));
  return ids;
}

struct Text {
  Text(int64_t count, uint64_t seed) : Text(Ids(count, seed)) {}
  explicit Text(std::vector<int32_t> ids)
      : tokens(std::move(ids)), chain(kKey, RootName(kKey, "bits", "", ""), tokens, std::ssize(tokens)) {}
  const std::vector<int32_t> tokens;
  BlockChain chain;
};

class PinTest : public testing::Test {
 protected:
  // Computes the text, pins its blocks until then (0: does not) and lets it go. Returns the blocks that were cached.
  int64_t Ask(const Text& text, TimeNs until = 0) {
    BlockTable table(pool_, kBlocks);
    const int64_t hits = table.Adopt(text.chain, (std::ssize(text.tokens) - 1) / kBlockTokens, false);
    EXPECT_TRUE(table.GrowTo(std::ssize(text.tokens)));
    table.Publish(text.chain, text.chain.blocks());
    if (until > 0) table.Pin(text.chain, text.chain.blocks(), until);
    CheckPoolIntegrity(pool_, {&table});
    return hits;
  }
  void Flood(int texts) {
    for (int i = 0; i < texts; ++i) Ask(Text(4 * kBlockTokens, ++seed_));
  }
  int64_t Cached(const Text& text) { return pool_.Peek(text.chain, text.chain.blocks()).blocks; }

  BlockPool pool_{kBlocks, true};
  uint64_t seed_ = 1000;
};

TEST_F(PinTest, APinnedPrefixOutlivesAFloodUntilItsTime) {
  const Text kept(5 * kBlockTokens, 1), other(5 * kBlockTokens, 2);
  Ask(kept, 3 * kNsPerMinute);
  Ask(other);
  Flood(60);
  EXPECT_EQ(Cached(kept), 5);
  EXPECT_EQ(Cached(other), 0);
  EXPECT_EQ(pool_.pinned_blocks(), 5);
  pool_.ExpirePins(3 * kNsPerMinute - 1);
  Flood(60);
  EXPECT_EQ(Cached(kept), 5);
  pool_.ExpirePins(3 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 0);
  EXPECT_EQ(Cached(kept), 5) << "it stays until the room is needed";
  Ask(Text(38 * kBlockTokens, 77));
  EXPECT_LE(Cached(kept), 2);
}

TEST_F(PinTest, AskedForAgainItStaysLongerAndNeverShorter) {
  const Text kept(5 * kBlockTokens, 1);
  Ask(kept, 3 * kNsPerMinute);
  EXPECT_EQ(Ask(kept, 9 * kNsPerMinute), 4);
  Ask(kept, 2 * kNsPerMinute);
  pool_.ExpirePins(8 * kNsPerMinute);
  Flood(60);
  EXPECT_EQ(Cached(kept), 5);
  pool_.ExpirePins(9 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 0);
}

TEST_F(PinTest, HalfOfThePoolIsPinnedAtMost) {
  std::vector<std::unique_ptr<Text>> texts;
  for (uint64_t i = 0; i < 8; ++i) Ask(*texts.emplace_back(std::make_unique<Text>(4 * kBlockTokens, i)), kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), kBlocks / 2);
  EXPECT_EQ(pool_.pins_refused(), 12u);
  Flood(60);
  int64_t cached = 0;
  for (const auto& text : texts) cached += Cached(*text);
  EXPECT_EQ(cached, kBlocks / 2);
}

TEST_F(PinTest, ASequenceGetsWhatIsPinnedWhenNothingElseIsLeft) {
  for (uint64_t i = 0; i < 5; ++i) Ask(Text(4 * kBlockTokens, i), kNsPerMinute);
  const Text large(38 * kBlockTokens, 77);
  EXPECT_EQ(Ask(large), 0);
  EXPECT_EQ(pool_.pinned_blocks(), 2);
  EXPECT_EQ(Cached(large), 38);
}

// The first of a prefix that finds no room is where its pins end, whatever gets free before the next.
TEST_F(PinTest, NothingIsPinnedLongerThanWhatComesBeforeIt) {
  const Text others(15 * kBlockTokens, 1), longer(9 * kBlockTokens, 2);
  Ask(others, kNsPerMinute);
  BlockTable table(pool_, kBlocks);
  ASSERT_TRUE(table.GrowTo(9 * kBlockTokens));
  table.Publish(longer.chain, 6);
  table.Pin(longer.chain, 6, 9 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 20);
  pool_.ExpirePins(kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 5);
  table.Publish(longer.chain, 8);
  table.Pin(longer.chain, 8, 9 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 5) << "the sixth is not";
  EXPECT_EQ(pool_.pins_refused(), 3u);
  CheckPoolIntegrity(pool_, {&table});
  BlockTable same(pool_, kBlocks);
  EXPECT_EQ(same.Adopt(longer.chain, 8, false), 8);
  same.Pin(longer.chain, 8, 3 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 8);
  table.Publish(longer.chain, 9);
  table.Pin(longer.chain, 9, 9 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 9);
  CheckPoolIntegrity(pool_, {&table, &same});
  pool_.ExpirePins(3 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 5) << "those before the sixth have nine minutes";
  CheckPoolIntegrity(pool_, {&table, &same});
}

// Prefixes that share their beginnings, tables that are open at once, pins of parts; who evicts takes pinned ones last.
TEST_F(PinTest, RandomTrafficKeepsEveryInvariant) {
  struct Open {
    std::unique_ptr<Text> text;
    std::unique_ptr<BlockTable> table;
    TimeNs until = 0;
  };
  uint64_t pinned_evicted = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    BlockPool pool(kBlocks, true);
    BlockNotes notes;
    notes.Reserve(kBlocks);
    pool.SetNotes(&notes);
    std::vector<Open> open;
    for (int step = 0; step < 1000; ++step) {
      pool.ExpirePins(step * kNsPerMinute / 4);
      notes.Clear();
      if (open.size() < 12 && random.Below(2) == 0) {
        std::vector<int32_t> ids = Ids(2 * kBlockTokens, random.Below(3));
        const std::vector<int32_t> end = Ids(static_cast<int64_t>(random.Below(6)) * kBlockTokens, random.Below(20));
        ids.insert(ids.end(), end.begin(), end.end());
        open.push_back({std::make_unique<Text>(std::move(ids)), std::make_unique<BlockTable>(pool, 10),
                        (step / 4 + static_cast<TimeNs>(random.Below(20))) * kNsPerMinute});
        open.back().table->Adopt(open.back().text->chain, open.back().text->chain.blocks(), false);
      } else if (!open.empty()) {
        const auto at = open.begin() + static_cast<int64_t>(random.Below(open.size()));
        auto& [text, table, until] = *at;
        if (!table->GrowTo(std::ssize(text->tokens)) || random.Below(3) == 0) {
          open.erase(at);
        } else {
          const auto blocks = 1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(text->chain.blocks())));
          table->Publish(text->chain, blocks);
          if (random.Below(2) == 0) table->Pin(text->chain, blocks, until);
        }
      }
      bool pinned = false;
      for (const BlockNote& note : notes.evicted) {
        EXPECT_TRUE(note.pinned_until > 0 || !pinned) << "a pinned one went before another";
        pinned = note.pinned_until > 0;
        pinned_evicted += pinned ? 1 : 0;
      }
      std::vector<const BlockTable*> tables;
      for (const Open& one : open) tables.push_back(one.table.get());
      CheckPoolIntegrity(pool, tables);
    }
  }
  EXPECT_GT(pinned_evicted, 0u);
}

TEST_F(PinTest, RandomPinsKeepEveryInvariant) {
  Random random(5);
  TimeNs now = 0;
  std::vector<std::unique_ptr<Text>> texts;
  for (uint64_t i = 0; i < 30; ++i)
    texts.push_back(std::make_unique<Text>(static_cast<int64_t>(1 + random.Below(9)) * kBlockTokens, i));
  for (int step = 0; step < 3000; ++step) {
    const auto minutes = static_cast<TimeNs>(random.Below(5));
    Ask(*texts[random.Below(texts.size())], minutes == 0 ? 0 : now + minutes * kNsPerMinute);
    now += static_cast<TimeNs>(random.Below(10)) * kNsPerSecond;
    pool_.ExpirePins(now);
    CheckPoolIntegrity(pool_, {});
  }
  pool_.ExpirePins(now + 10 * kNsPerMinute);
  EXPECT_EQ(pool_.pinned_blocks(), 0);
  CheckPoolIntegrity(pool_, {});
}

}  // namespace
}  // namespace headrace
