// Goal: the first stop string is found whatever way the bytes arrive, nothing after its start is released, nothing
// before it is lost, and no byte is held longer than a stop string could still need it (O-02).
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/random.h"

namespace headrace {
namespace {

StopMatcher Build(const std::vector<std::string>& stops) {
  auto matcher = StopMatcher::Build(stops);
  EXPECT_TRUE(matcher.has_value()) << matcher.error().message;
  return matcher.value_or(StopMatcher());
}

struct Naive {
  bool matched = false;
  int32_t stop = -1;
  uint64_t release_bytes = 0;
};

// The definition: the smallest end, then the smallest start, then the first of equal strings.
Naive FindNaively(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (std::string_view(text).substr(0, end).ends_with(stops[i]) &&
          (!best || stops[i].size() > stops[*best].size())) {
        best = i;
      }
    }
    if (best) return {true, static_cast<int32_t>(*best), end - stops[*best].size()};
  }
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = std::min(stop.size() - 1, text.size()); n > held; --n) {
      if (text.ends_with(stop.substr(0, n))) held = n;
    }
  }
  return {false, -1, text.size() - held};
}

TEST(StopMatcher, EqualsTheDefinition) {
  Random random(3);
  for (int round = 0; round < 5'000; ++round) {
    const uint64_t letters = 1 + random.Below(3);
    const auto word = [&](uint64_t length) {
      std::string text;
      for (; length > 0; --length) text += static_cast<char>('a' + random.Below(letters));
      return text;
    };
    std::vector<std::string> stops;
    for (uint64_t n = 1 + random.Below(5); n > 0; --n) stops.push_back(word(1 + random.Below(6)));
    const StopMatcher matcher = Build(stops);
    StopMatcher::State state;
    std::string text;
    uint64_t released = 0;
    for (int tokens = 0; tokens < 12; ++tokens) {
      const std::string token = word(random.Below(4));
      text += token;
      const StopMatcher::Found found = matcher.Feed(state, token);
      const Naive expected = FindNaively(text, stops);
      ASSERT_EQ(found.matched, expected.matched) << text;
      ASSERT_EQ(found.release_bytes, expected.release_bytes) << text;
      ASSERT_GE(found.release_bytes, released);
      released = found.release_bytes;
      if (found.matched) {
        ASSERT_EQ(stops[static_cast<size_t>(found.stop)], stops[static_cast<size_t>(expected.stop)]);
        break;
      }
    }
  }
}

// O-02: with a stop string that spans tokens, its first part is already sent when the match completes; the opposite
// fault loses text that was held back when the end comes first.
TEST(StopMatcher, O02aMatchSpansTokens) {
  const StopMatcher matcher = Build({"own fox"});
  StopMatcher::State state;
  EXPECT_EQ(matcher.Feed(state, "The quick").release_bytes, 9u);
  EXPECT_EQ(matcher.Feed(state, " br").release_bytes, 12u);
  EXPECT_EQ(matcher.Feed(state, "ow").release_bytes, 12u);  // "ow" may begin the stop string
  EXPECT_EQ(matcher.Feed(state, "n f").release_bytes, 12u);
  const StopMatcher::Found found = matcher.Feed(state, "ox jumps");
  EXPECT_TRUE(found.matched);
  EXPECT_EQ(found.stop, 0);
  EXPECT_EQ(found.release_bytes, std::string("The quick br").size());
  EXPECT_TRUE(matcher.Feed(state, "more").matched);
  EXPECT_EQ(matcher.Feed(state, "more").release_bytes, 12u);
}

TEST(StopMatcher, O02bNothingIsLostWhenTheEndComesFirst) {
  const StopMatcher matcher = Build({"own foxes"});
  StopMatcher::State state;
  const StopMatcher::Found found = matcher.Feed(state, "The quick brown fox");
  EXPECT_FALSE(found.matched);
  EXPECT_EQ(found.release_bytes, std::string("The quick br").size());
  EXPECT_EQ(state.text_bytes, std::string("The quick brown fox").size());  // what the caller flushes at the end
}

TEST(StopMatcher, O02cOneStopIsAPrefixOfAnother) {
  const StopMatcher matcher = Build({"brown fox", "brown"});
  StopMatcher::State state;
  const StopMatcher::Found found = matcher.Feed(state, "The quick brown fox");
  EXPECT_TRUE(found.matched);
  EXPECT_EQ(found.stop, 1);
  EXPECT_EQ(found.release_bytes, 10u);
}

TEST(StopMatcher, TheLongestOfThoseThatEndTogether) {
  const StopMatcher matcher = Build({"fox", "brown fox", "n fox"});
  StopMatcher::State state;
  const StopMatcher::Found found = matcher.Feed(state, "brown fox");
  EXPECT_EQ(found.stop, 1);
  EXPECT_EQ(found.release_bytes, 0u);
}

TEST(StopMatcher, NoStops) {
  const StopMatcher matcher = Build({});
  StopMatcher::State state;
  EXPECT_TRUE(matcher.empty());
  EXPECT_EQ(matcher.Feed(state, "abc").release_bytes, 3u);
}

TEST(StopMatcher, EveryByteValue) {
  std::string all;
  for (int byte = 255; byte >= 0; --byte) all += static_cast<char>(byte);
  const StopMatcher matcher = Build({all});
  StopMatcher::State state;
  EXPECT_FALSE(matcher.Feed(state, std::string("\xFF\xFE", 2)).matched);
  EXPECT_TRUE(matcher.Feed(state, all).matched);
  EXPECT_EQ(matcher.Feed(state, "").release_bytes, 2u);
}

TEST(StopMatcher, Limits) {
  const auto code = [](const std::vector<std::string>& stops) { return StopMatcher::Build(stops).error().code; };
  EXPECT_EQ(code({"a", ""}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({std::string(kStopStringBytesMax + 1, 'a')}), ErrorCode::kTooLarge);
  EXPECT_EQ(code(std::vector<std::string>(kStopStringsMax + 1, "a")), ErrorCode::kTooLarge);
  EXPECT_EQ(code(std::vector<std::string>(5, std::string(kStopStringBytesMax, 'a'))), ErrorCode::kTooLarge);
  EXPECT_TRUE(StopMatcher::Build(std::vector<std::string>(4, std::string(kStopStringBytesMax, 'a'))).has_value());
}

}  // namespace
}  // namespace headrace
