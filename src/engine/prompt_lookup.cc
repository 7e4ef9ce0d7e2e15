#include "engine/prompt_lookup.h"

#include <algorithm>

namespace headrace {
namespace {

// Tokens of memory: a request changes its ways within a paragraph, all together slowly.
constexpr float kOwnMemory = 48;
// Tokens that what others did is worth to a request that has none of its own.
constexpr float kOthersWeight = 3;
// The first guesses, by length of match, worth this many tokens. From greedy answers of SmolLM2-135M.
constexpr float kGuessWeight = 8;
constexpr float GuessOf(int32_t match_length) {
  return match_length <= 2 ? 0.25f : match_length == 3 ? 0.4f : match_length <= 6 ? 0.55f : 0.75f;
}
// A draft below this is worth no row on any machine.
constexpr float kSurvivalLeast = 0.03f;

int64_t TextTokens(int64_t prompt, int64_t tokens_max) {
  return std::min(prompt + std::min(tokens_max, PromptLookup::kAnswerMax), PromptLookup::kTextMax);
}

}  // namespace

PromptLookup::PromptLookup(std::span<const int32_t> prompt, int64_t tokens_max, std::shared_ptr<const TextIndex> others)
    : own_(static_cast<size_t>(TextTokens(static_cast<int64_t>(prompt.size()), tokens_max))),
      others_(std::move(others)),
      own_acceptance_(kOwnMemory) {
  const size_t indexed = std::min<size_t>(prompt.size(), kTextMax);
  for (const int32_t token : prompt.last(indexed)) own_.Append(token);
}

void PromptLookup::Append(int32_t token, Acceptance& everyone) {
  if (!searched_) Search();
  bool right = false;
  if (Foretells()) {
    right = source_->At(next_) == token;
    own_acceptance_.Note(length_, right);
    everyone.Note(length_, right);
  }
  own_.Append(token);
  if (!right) return Search();
  ++next_;
  length_ = std::min(length_ + 1, TextIndex::kMatchMost);
}

void PromptLookup::Search() {
  searched_ = true;
  TextIndex::Match best = own_.Find(own_);
  source_ = best.length > 0 ? &own_ : nullptr;
  if (others_ != nullptr && best.length < TextIndex::kMatchMost) {
    const TextIndex::Match other = others_->Find(own_);
    if (other.length > best.length) {
      best = other;
      source_ = others_.get();
    }
  }
  next_ = best.next;
  length_ = best.length;
}

float PromptLookup::Rate(int32_t match_length, const Acceptance& everyone) const {
  const float prior = everyone.Rate(match_length, GuessOf(match_length), kGuessWeight);
  return own_acceptance_.Rate(match_length, prior, kOthersWeight);
}

int32_t PromptLookup::Propose(const Acceptance& everyone, std::span<int32_t> tokens, std::span<float> survival) {
  if (!searched_ || !Foretells()) Search();
  if (!Foretells()) return 0;
  int32_t count = 0;
  float survives = 1;
  for (; count < static_cast<int32_t>(tokens.size()); ++count) {
    const auto at = static_cast<size_t>(count);
    const uint32_t position = next_ + static_cast<uint32_t>(count);
    if (source_->Holds(position)) {
      tokens[at] = source_->At(position);
    } else if (source_ == &own_ && position >= own_.end()) {
      tokens[at] = tokens[position - own_.end()];  // the text repeats what is between the match and its end
    } else {
      break;
    }
    survives *= Rate(length_ + count, everyone);
    if (survives < kSurvivalLeast) break;
    survival[at] = survives;
  }
  return count;
}

}  // namespace headrace
