// Goal: what is drafted is what followed the longest match, as a search through the whole text would find it; nothing
// forgotten or of another tenant is ever drafted; the probabilities are those of the text; and memory is bounded.
#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"
#include "engine/tenant_texts.h"

namespace headrace {
namespace {

// Tokens before `next` that equal the last ones of `text`.
int32_t MatchBefore(const std::vector<int32_t>& from, size_t next, const std::vector<int32_t>& text) {
  int32_t length = 0;
  for (size_t back = 1; back <= std::min(next, text.size()) && length < TextIndex::kMatchMost; ++back, ++length)
    if (from[next - back] != text[text.size() - back]) break;
  return length;
}

// Where TextIndex::Find would look, by reading everything; -1: nowhere.
int64_t OraclePlace(const std::vector<int32_t>& text, int32_t* length) {
  int64_t best = -1, pair = -1;
  *length = 0;
  int places = 0;
  for (size_t next = text.size() - 1; next > 0 && places < TextIndex::kPlacesTried; --next) {
    const int32_t match = MatchBefore(text, next, text);
    if (match == 2 && pair < 0) pair = static_cast<int64_t>(next);
    if (match < 3) continue;
    ++places;
    if (match > *length) {
      *length = match;
      best = static_cast<int64_t>(next);
    }
    if (match == TextIndex::kMatchMost) break;
  }
  if (best < 0 && pair >= 0) *length = 2;
  return best >= 0 ? best : pair;
}

TEST(TextIndexTest, FindsWhatASearchThroughTheWholeTextFinds) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    TextIndex index(1 << 16);
    std::vector<int32_t> text;
    int found = 0;
    while (text.size() < 1500) {
      // New tokens, and pieces of what there is.
      std::vector<int32_t> more(1 + random.Below(6));
      for (int32_t& token : more) token = static_cast<int32_t>(random.Below(2 + seed % 4));
      if (!text.empty() && random.Below(2) == 0) {
        const auto from = static_cast<int64_t>(random.Below(text.size()));
        more.assign(text.begin() + from, text.begin() + std::min<int64_t>(from + 40, std::ssize(text)));
      }
      for (const int32_t token : more) {
        text.push_back(token);
        index.Append(token);
        int32_t length = 0;
        const int64_t place = OraclePlace(text, &length);
        const TextIndex::Match match = index.Find(index);
        ASSERT_EQ(match.length, place < 0 ? 0 : length) << "seed " << seed << " at " << text.size();
        if (place < 0) continue;
        ++found;
        ASSERT_EQ(index.At(match.next), text[static_cast<size_t>(place)]) << "seed " << seed;
        ASSERT_EQ(index.end() - match.next, text.size() - static_cast<size_t>(place));
      }
    }
    EXPECT_GT(found, 1000);
  }
}

TEST(TextIndexTest, WhatIsForgottenIsNotFoundAndWhatIsFoundIsThere) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed);
    TextIndex index(64);
    std::vector<int32_t> text;
    for (int i = 0; i < 3000; ++i) {
      if (random.Below(40) == 0) {
        index.Break();
        text.push_back(-1);
      }
      text.push_back(static_cast<int32_t>(random.Below(3)));
      index.Append(text.back());
      const TextIndex::Match match = index.Find(index);
      if (match.length == 0) continue;
      const size_t back = index.end() - match.next;
      ASSERT_LE(back, 64u);
      ASSERT_EQ(index.At(match.next), text[text.size() - back]);
      ASSERT_NE(index.At(match.next), -1) << "a break was drafted";
      for (size_t b = 1; b <= static_cast<size_t>(match.length); ++b) {
        ASSERT_EQ(text[text.size() - back - b], text[text.size() - b]);
        ASSERT_NE(text[text.size() - b], -1) << "a match across a break";
      }
    }
  }
}

std::vector<int32_t> Ids(std::string_view text) { return {text.begin(), text.end()}; }

std::string Drafted(PromptLookup& lookup, const Acceptance& everyone, size_t most = 8) {
  std::vector<int32_t> tokens(most);
  std::vector<float> survival(most);
  const auto count = static_cast<size_t>(lookup.Propose(everyone, tokens, survival));
  for (size_t i = 1; i < count; ++i) EXPECT_LE(survival[i], survival[i - 1]);
  return {tokens.begin(), tokens.begin() + static_cast<int64_t>(count)};
}

TEST(PromptLookupTest, FollowsThePromptAndItsOwnAnswer) {
  Acceptance everyone(1000);
  PromptLookup lookup(Ids("the quick brown fox. Repeat: the qu"), 100, nullptr);
  EXPECT_EQ(Drafted(lookup, everyone, 5), "ick b");
  for (const char c : std::string("ick r")) lookup.Append(c, everyone);
  EXPECT_EQ(Drafted(lookup, everyone), "") << "the text has left its match";
  PromptLookup loop(Ids("xyzabababab"), 100, nullptr);
  EXPECT_EQ(Drafted(loop, everyone, 5), "ababa") << "a loop goes on beyond the end of the text";
}

TEST(PromptLookupTest, TheTenantsEarlierAnswersServeAndNobodyElses) {
  TenantTexts tenants;
  Acceptance everyone(1000);
  const auto texts = tenants.Of("a");
  texts->Break();
  for (const int32_t token : Ids("Dear customer, thank you")) texts->Append(token);
  PromptLookup same(Ids("Q: Dear cu"), 50, tenants.Of("a"));
  EXPECT_EQ(Drafted(same, everyone, 4), "stom");
  PromptLookup other(Ids("Q: Dear cu"), 50, tenants.Of("b"));
  EXPECT_EQ(Drafted(other, everyone), "");
  // Namespaces beyond the limit take the place of the one asked longest ago.
  for (size_t i = 0; i < TenantTexts::kTenantsMax; ++i) tenants.Of("t" + std::to_string(i));
  PromptLookup late(Ids("Q: Dear cu"), 50, tenants.Of("a"));
  EXPECT_EQ(Drafted(late, everyone), "");
}

// A long copy becomes near certain, a text without order hardly worth a row: learned without a single draft.
TEST(PromptLookupTest, ProbabilitiesAreLearnedFromTheTextAlone) {
  Acceptance everyone(1000);
  Random random(3);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 400; ++i) prompt.push_back(static_cast<int32_t>(random.Below(500)));
  PromptLookup copy(prompt, 400, nullptr);
  for (int i = 0; i < 100; ++i) copy.Append(prompt[static_cast<size_t>(i)], everyone);
  std::vector<int32_t> tokens(8);
  std::vector<float> survival(8);
  ASSERT_EQ(copy.Propose(everyone, tokens, survival), 8);
  EXPECT_GT(survival[7], 0.8f);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), prompt.begin() + 100));

  Acceptance nobody(1000);
  PromptLookup noise(std::vector<int32_t>(2, 1), 3000, nullptr);
  for (int i = 0; i < 2000; ++i) noise.Append(static_cast<int32_t>(random.Below(8)), nobody);
  float most = 0;
  for (int i = 0; i < 200; ++i) {
    noise.Append(static_cast<int32_t>(random.Below(8)), nobody);
    if (noise.Propose(nobody, tokens, survival) > 0) most = std::max(most, survival[0]);
  }
  EXPECT_LT(most, 0.4f) << "one in eight is right";
}

TEST(PromptLookupTest, LongTextsKeepTheirEnd) {
  Acceptance everyone(1000);
  std::vector<int32_t> prompt(static_cast<size_t>(3 * PromptLookup::kTextMax));
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int32_t>(i);
  for (const size_t from : {prompt.size() - 1000, size_t{1000}}) {
    PromptLookup lookup(prompt, INT64_MAX, nullptr);
    for (size_t i = from; i < from + 4; ++i) lookup.Append(prompt[i], everyone);
    EXPECT_EQ(Drafted(lookup, everyone, 4).size(), from == 1000 ? 0u : 4u);
  }
}

}  // namespace
}  // namespace headrace
