#include "engine/text_index.h"

#include <algorithm>
#include <bit>

#include "base/random.h"

namespace headrace {

TextIndex::TextIndex(size_t tokens_max)
    : mask_(static_cast<uint32_t>(std::bit_ceil(std::max<size_t>(tokens_max, 4)) - 1)),
      tokens_(mask_ + 1),
      earlier_(mask_ + 1),
      last2_(mask_ + 1),
      last3_(mask_ + 1) {}

uint32_t TextIndex::HashOf2(uint32_t end) const {
  const auto a = static_cast<uint32_t>(At(end - 2)), b = static_cast<uint32_t>(At(end - 1));
  return static_cast<uint32_t>(SplitMix64(uint64_t{a} << 32 | b));
}

uint32_t TextIndex::HashOf3(uint32_t end) const {
  const auto a = static_cast<uint32_t>(At(end - 3)), b = static_cast<uint32_t>(At(end - 2)),
             c = static_cast<uint32_t>(At(end - 1));
  return static_cast<uint32_t>(SplitMix64(SplitMix64(uint64_t{a} << 32 | b) + c));
}

// A place is noted when its token is there: so no text finds its own end.
void TextIndex::Append(int32_t token) {
  if (end_ == kForgetAt) {
    std::ranges::fill(last2_, 0);
    std::ranges::fill(last3_, 0);
    end_ = kFirst;
  }
  if (token != kBreak && HoldsBefore(end_, 3)) {
    uint32_t& last = last3_[HashOf3(end_) & mask_];
    earlier_[end_ & mask_] = last;
    last = end_;
  }
  if (token != kBreak && HoldsBefore(end_, 2)) last2_[HashOf2(end_) & mask_] = end_;
  tokens_[end_ & mask_] = token;
  ++end_;
}

// Tokens before `next` that equal the last ones of `text`. The hash may have lied: then 0 or 1.
int32_t TextIndex::MatchAt(uint32_t next, const TextIndex& text) const {
  int32_t length = 0;
  for (uint32_t back = 1; length < kMatchMost; ++back, ++length) {
    const uint32_t here = next - back, there = text.end_ - back;
    if (!Holds(here) || !text.Holds(there) || At(here) != text.At(there)) break;
  }
  return length;
}

TextIndex::Match TextIndex::Find(const TextIndex& text) const {
  Match best;
  if (text.HoldsBefore(text.end_, 3)) {
    uint32_t place = last3_[text.HashOf3(text.end_) & mask_];
    for (int tried = 0; tried < kPlacesTried && Holds(place); ++tried) {
      const int32_t length = MatchAt(place, text);
      if (length > best.length) best = {place, length};
      if (length == kMatchMost) break;
      const uint32_t earlier = earlier_[place & mask_];
      if (earlier >= place) break;
      place = earlier;
    }
  }
  if (best.length < kMatchLeast && text.HoldsBefore(text.end_, 2)) {
    const uint32_t place = last2_[text.HashOf2(text.end_) & mask_];
    if (Holds(place)) best = {place, MatchAt(place, text)};
  }
  return best.length < kMatchLeast ? Match{} : best;
}

}  // namespace headrace
