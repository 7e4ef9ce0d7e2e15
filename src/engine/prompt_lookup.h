// Drafts by looking up: where the last tokens of a request stand earlier in its own text, or in what its tenant was
// answered before, what followed there is likely to follow here (Saxena, "Prompt Lookup Decoding", 2023; Yang et al.,
// "Inference with Reference", 2023). A match is followed for as long as it foretells right. Pure: tokens in, tokens
// and probabilities out. Made by any thread, then used by the engine's; allocates nothing after it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/acceptance.h"
#include "engine/text_index.h"

namespace headrace {

class PromptLookup {
 public:
  // Last tokens of a request that are looked up; 16 bytes each.
  static constexpr int64_t kTextMax = 32'768;
  // Generated tokens that room is made for beside a prompt: of more the oldest tokens of all are forgotten.
  static constexpr int64_t kAnswerMax = 4096;

  // `others` are texts of the same tenant; may be null. At most `tokens_max` tokens are generated.
  PromptLookup(std::span<const int32_t> prompt, int64_t tokens_max, std::shared_ptr<const TextIndex> others);

  // The token that came next. `everyone` learns with this request and is its prior.
  void Append(int32_t token, Acceptance& everyone);

  // Fills `tokens` with what is likely to come, and survival[i] with the probability that the first i + 1 of them do.
  // Returns how many; fewer where the rest is too unlikely or nothing is known.
  int32_t Propose(const Acceptance& everyone, std::span<int32_t> tokens, std::span<float> survival);

 private:
  void Search();
  bool Foretells() const { return source_ != nullptr && source_->Holds(next_); }
  float Rate(int32_t match_length, const Acceptance& everyone) const;

  TextIndex own_;
  const std::shared_ptr<const TextIndex> others_;
  Acceptance own_acceptance_;
  // The match that is followed; the text goes on at next_ of source_. Null: none was found for the text as it is.
  const TextIndex* source_ = nullptr;
  uint32_t next_ = 0;
  int32_t length_ = 0;
  bool searched_ = false;
};

}  // namespace headrace
