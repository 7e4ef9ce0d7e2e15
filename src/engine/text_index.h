// Where a text goes on after its last tokens were seen before: the last tokens_max tokens of a text, or of several with
// a break between them, with every place at which two or three of them were followed by another. Sized once; an
// operation takes the same few steps however long the text is, and allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headrace {

class TextIndex {
 public:
  static constexpr int32_t kMatchLeast = 2;
  static constexpr int32_t kMatchMost = 32;  // tokens compared
  static constexpr int kPlacesTried = 8;     // of those that three tokens have in common

  // Holds at least `tokens_max` tokens, the last ones.
  explicit TextIndex(size_t tokens_max);

  void Append(int32_t token);
  // What follows continues nothing.
  void Break() { Append(kBreak); }

  // A place behind `length` tokens that are also the last ones of a text.
  struct Match {
    uint32_t next = 0;
    int32_t length = 0;  // 0: none
  };
  // The longest match with the end of `text`, which may be this one; the most recent among equals. Looked for among
  // the last kPlacesTried places behind the same three tokens, else at the last one behind the same two.
  Match Find(const TextIndex& text) const;

  uint32_t end() const { return end_; }
  // Whether there is a token at `position` that has not been forgotten and is no break.
  bool Holds(uint32_t position) const {
    return position < end_ && position >= kFirst && end_ - position <= tokens_.size() && At(position) != kBreak;
  }
  int32_t At(uint32_t position) const { return tokens_[position & mask_]; }

 private:
  static constexpr int32_t kBreak = -1;
  static constexpr uint32_t kFirst = 1;  // 0 stands for no place
  // Positions stay below 2^32: at this one everything is forgotten.
  static constexpr uint32_t kForgetAt = 1u << 31;

  uint32_t HashOf2(uint32_t end) const;
  uint32_t HashOf3(uint32_t end) const;
  int32_t MatchAt(uint32_t next, const TextIndex& text) const;
  static bool HoldsBefore(uint32_t end, uint32_t tokens) { return end >= kFirst + tokens; }

  const uint32_t mask_;
  uint32_t end_ = kFirst;
  std::vector<int32_t> tokens_;    // [mask_ + 1], by position
  std::vector<uint32_t> earlier_;  // [mask_ + 1]: the place before this one behind three tokens of the same hash
  std::vector<uint32_t> last2_;    // by hash of two tokens: the last place behind them
  std::vector<uint32_t> last3_;    // of three
};

}  // namespace headrace
