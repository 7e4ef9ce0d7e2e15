// Text to token ids and token ids to bytes, for one model. The ids equal those of the model's own tokenizer.
//
// Byte-level pair merging (`gpt2`) and SentencePiece pair merging (`llama`) run on engines whose time is n log n for
// any text and that use no deep stack; a tokenizer.json of another kind runs on the tokenizers library.
//
// Thread-safe: immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct ts_tokenizer;

namespace headrace {

// Sizes that one tokenizer may have; larger input is refused with kTooLarge.
constexpr size_t kEncodeBytesMax = 64ull << 20;
constexpr size_t kVocabularyTokensMax = 1ull << 22;   // the largest published vocabulary has 2^18
constexpr size_t kVocabularyBytesMax = 256ull << 20;  // all tokens or all merges laid end to end
constexpr size_t kTokenizerJsonBytesMax = 128ull << 20;

// The tokenizer arrays of a GGUF file. Ids below 0 are absent.
struct Vocabulary {
  std::string model;                // "gpt2" or "llama"
  std::string pre;                  // gpt2: the pre-tokenizer's name
  std::vector<std::string> tokens;  // raw pieces
  std::vector<float> scores;        // llama: one per token
  std::vector<int32_t> types;       // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; may be empty
  std::vector<std::string> merges;  // gpt2: "left right", best first
  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  bool add_bos = false, add_eos = false;
  bool add_space_prefix = true;  // llama only
};

struct EncodeOptions {
  bool parse_special = false;  // text that spells a control token becomes that token
  bool add_special = false;    // BOS and EOS as the model wants them, never doubled
};

class Tokenizer {
 public:
  // kCorruptData: the arrays contradict each other; kUnsupported: unknown model or pre, the message names the known.
  static Result<std::unique_ptr<Tokenizer>> FromVocabulary(Vocabulary vocabulary);
  // tokenizer_config_json may be empty; it names BOS, EOS and whether they are added.
  static Result<std::unique_ptr<Tokenizer>> FromJson(std::string_view tokenizer_json,
                                                     std::string_view tokenizer_config_json);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  int32_t vocab_size() const { return vocab_size_; }

  // kInvalidArgument when `text` is not UTF-8, kTooLarge above kEncodeBytesMax. User-defined tokens are matched in any
  // text; control tokens only with parse_special.
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const;

  // A rendered chat: control tokens are parsed, BOS is added unless the text brings it, EOS is not. `sentinel` is
  // dropped before encoding; where it stands inside a control token's text, that text stays plain. 0: no sentinel.
  Result<std::vector<int32_t>> EncodeRendered(std::string_view text, char32_t sentinel) const;

  // The bytes that a token adds to the text; a control token's are its name, and the caller decides whether to show
  // it. Empty for an id outside the vocabulary. Valid as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  // The raw piece as the vocabulary spells it.
  std::string_view TokenText(int32_t id) const;
  bool IsControl(int32_t id) const;

  // Tokens that end an answer: eos, eot, eom and control tokens with one of the usual names. Sorted.
  std::span<const int32_t> end_of_generation() const { return end_of_generation_; }

  // -1 when the model has none.
  int32_t bos() const { return bos_; }
  int32_t eos() const { return eos_; }
  std::string BosText() const { return std::string(TokenText(bos_)); }
  std::string EosText() const { return std::string(TokenText(eos_)); }
  bool adds_bos() const { return adds_bos_; }

  // SentencePiece puts a blank in front of a text. Decoding a whole text from its start (a /detokenize call) drops one
  // leading blank when this holds; an answer continues its prompt and keeps every blank.
  bool StripsLeadingSpace() const { return strips_leading_space_; }

  // For the grammar part of this room.
  const ts_tokenizer* shim() const { return handle_; }

 private:
  explicit Tokenizer(ts_tokenizer* handle);
  Result<std::vector<int32_t>> EncodeWith(std::string_view text, bool parse_special, bool add_head, bool add_tail,
                                          char32_t sentinel) const;
  void CollectEndTokens(std::span<const int32_t> named);

  ts_tokenizer* handle_;  // owned
  int32_t vocab_size_ = 0;
  int32_t bos_ = -1;
  int32_t eos_ = -1;
  bool adds_bos_ = false;
  bool strips_leading_space_ = false;
  std::vector<int32_t> end_of_generation_;
};

}  // namespace headrace
