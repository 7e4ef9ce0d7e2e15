// What an answer may be, token by token: a JSON schema, a regular expression or a Lark grammar as masks over the
// vocabulary (llguidance: Earley parsing over derivatives of regular expressions, Moskal et al., 2025).
//
// One Grammar follows one answer: Mask, a token of the mask, Commit, until done. Compiling is slow beside a step
// (milliseconds, once for each vocabulary tens of them) and belongs on the text pool; Clone is cheap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/token_mask.h"
#include "text/tokenizer.h"

struct ts_matcher;

namespace headrace {

enum class GrammarKind : uint8_t { kJsonSchema, kRegex, kLark };

constexpr size_t kGrammarBytesMax = 1 << 20;  // of a grammar's text

// The compiler follows rules and references by recursion: a chain of 1,000 rules is safe on an 8 MiB stack, of 20,000
// it is the end of the process. Rules of a Lark grammar, by their colons, and references of a schema.
constexpr ptrdiff_t kGrammarRulesMax = 500;

// One thread at a time.
class Grammar {
 public:
  // Errors: kInvalidArgument says what is wrong with the text, or which keyword of a schema is not enforced. The
  // tokenizer must outlive it.
  static Result<std::unique_ptr<Grammar>> Compile(const Tokenizer& tokenizer, GrammarKind kind, std::string_view text);
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // In the same state, and alone from here on.
  Result<std::unique_ptr<Grammar>> Clone() const;
  // The tokens that may come next (base/token_mask.h); the end token among them where the answer may end. At least one
  // is allowed. Text that the grammar leaves no choice of comes as the tokenizer would spell it. Words beyond the
  // vocabulary's are zero. REQUIRES: its MaskWords, or more. Errors: kInvalidArgument: too ambiguous to follow within
  // the budget of a step.
  Status Mask(std::span<uint32_t> words);
  // REQUIRES: a token that the last mask allows, and not an end token. Errors as of Mask.
  Status Commit(int32_t token);
  // Nothing may follow but the end.
  bool done() const { return done_; }

 private:
  explicit Grammar(ts_matcher* matcher) : matcher_(matcher) {}

  ts_matcher* const matcher_;
  bool done_ = false;
};

}  // namespace headrace
