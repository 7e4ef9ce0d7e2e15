#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/shim.h"

namespace headrace {
namespace {

constexpr int32_t kTypeNormal = 1;
constexpr int32_t kTypeUnknown = 2;
constexpr int32_t kTypeControl = 3;
constexpr int32_t kTypeByte = 6;

// How published vocabularies call the tokens that end a turn or a text.
constexpr std::array<std::string_view, 7> kEndNames = {"<|im_end|>", "<|eot_id|>", "<|endoftext|>", "<end_of_turn>",
                                                       "<|end|>",    "<|eom_id|>", "</s>"};

// Strings laid end to end, as the library takes them.
struct FlatStrings {
  std::string bytes;
  std::vector<size_t> ends;
};

Result<FlatStrings> Flatten(const std::vector<std::string>& strings, std::string_view what) {
  FlatStrings flat;
  size_t bytes = 0;
  for (const std::string& s : strings) bytes += s.size();
  if (strings.size() > kVocabularyTokensMax || bytes > kVocabularyBytesMax) {
    return Fail(ErrorCode::kTooLarge, "vocabulary: " + std::to_string(strings.size()) + " " + std::string(what) +
                                          " of " + std::to_string(bytes) + " bytes; at most " +
                                          std::to_string(kVocabularyTokensMax) + " of " +
                                          std::to_string(kVocabularyBytesMax) + " bytes are read");
  }
  flat.bytes.reserve(bytes);
  flat.ends.reserve(strings.size());
  for (const std::string& s : strings) {
    flat.bytes += s;
    flat.ends.push_back(flat.bytes.size());
  }
  return flat;
}

bool IsBytePiece(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">");
}

// Old files carry no types: the named ids are control tokens, <0xNN> are bytes, the rest is ordinary.
void FillTypes(Vocabulary& vocabulary) {
  vocabulary.types.assign(vocabulary.tokens.size(), kTypeNormal);
  if (vocabulary.model == "llama") {
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (IsBytePiece(vocabulary.tokens[i])) vocabulary.types[i] = kTypeByte;
    }
  }
  for (int32_t id : {vocabulary.bos, vocabulary.eos, vocabulary.eot, vocabulary.eom, vocabulary.unk, vocabulary.pad}) {
    if (id >= 0 && static_cast<size_t>(id) < vocabulary.types.size()) {
      vocabulary.types[static_cast<size_t>(id)] = id == vocabulary.unk ? kTypeUnknown : kTypeControl;
    }
  }
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromVocabulary(Vocabulary vocabulary) {
  if (vocabulary.types.empty()) FillTypes(vocabulary);
  HR_ASSIGN_OR_RETURN(const FlatStrings tokens, Flatten(vocabulary.tokens, "tokens"));
  HR_ASSIGN_OR_RETURN(const FlatStrings merges, Flatten(vocabulary.merges, "merges"));
  const ts_vocabulary raw{
      .model = ShimBytes(vocabulary.model),
      .model_len = vocabulary.model.size(),
      .pre = ShimBytes(vocabulary.pre),
      .pre_len = vocabulary.pre.size(),
      .tokens = ShimBytes(tokens.bytes),
      .tokens_len = tokens.bytes.size(),
      .token_ends = tokens.ends.data(),
      .token_count = tokens.ends.size(),
      .scores = vocabulary.scores.data(),
      .score_count = vocabulary.scores.size(),
      .types = vocabulary.types.data(),
      .type_count = vocabulary.types.size(),
      .merges = ShimBytes(merges.bytes),
      .merges_len = merges.bytes.size(),
      .merge_ends = merges.ends.data(),
      .merge_count = merges.ends.size(),
      .bos = vocabulary.bos,
      .eos = vocabulary.eos,
      .unk = vocabulary.unk,
      .pad = vocabulary.pad,
      .add_bos = vocabulary.add_bos,
      .add_eos = vocabulary.add_eos,
      .add_space_prefix = vocabulary.add_space_prefix,
  };
  ts_tokenizer* handle = nullptr;
  ShimBuffer err;
  const ts_status status = ts_tokenizer_from_arrays(&raw, &handle, err.raw());
  if (status != TS_OK) return Fail(ShimError(status, err, ErrorCode::kCorruptData));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(handle));
  tokenizer->CollectEndTokens(std::array{vocabulary.eos, vocabulary.eot, vocabulary.eom});
  return tokenizer;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view tokenizer_json,
                                                       std::string_view tokenizer_config_json) {
  if (tokenizer_json.size() > kTokenizerJsonBytesMax || tokenizer_config_json.size() > kTokenizerJsonBytesMax) {
    return Fail(ErrorCode::kTooLarge, "tokenizer.json: more than " + std::to_string(kTokenizerJsonBytesMax) + " bytes");
  }
  ts_tokenizer* handle = nullptr;
  ShimBuffer err;
  const ts_status status =
      ts_tokenizer_from_json(ShimBytes(tokenizer_json), tokenizer_json.size(), ShimBytes(tokenizer_config_json),
                             tokenizer_config_json.size(), &handle, err.raw());
  if (status != TS_OK) return Fail(ShimError(status, err, ErrorCode::kCorruptData));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(handle));
  tokenizer->CollectEndTokens(std::array{tokenizer->eos_});
  return tokenizer;
}

Tokenizer::Tokenizer(ts_tokenizer* handle) : handle_(handle) {
  ts_description description{};
  ts_tokenizer_describe(handle_, &description);
  vocab_size_ = static_cast<int32_t>(description.vocab_size);
  bos_ = description.bos;
  eos_ = description.eos;
  adds_bos_ = description.adds_bos;
  strips_leading_space_ = description.strips_leading_space;
}

Tokenizer::~Tokenizer() { ts_tokenizer_free(handle_); }

void Tokenizer::CollectEndTokens(std::span<const int32_t> named) {
  for (int32_t id : named) {
    if (id >= 0 && id < vocab_size_) end_of_generation_.push_back(id);
  }
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (IsControl(id) && std::ranges::find(kEndNames, TokenText(id)) != kEndNames.end())
      end_of_generation_.push_back(id);
  }
  std::ranges::sort(end_of_generation_);
  const auto repeated = std::ranges::unique(end_of_generation_);
  end_of_generation_.erase(repeated.begin(), repeated.end());
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeWith(text, options.parse_special, options.add_special, options.add_special, 0);
}

Result<std::vector<int32_t>> Tokenizer::EncodeRendered(std::string_view text, char32_t sentinel) const {
  return EncodeWith(text, /*parse_special=*/true, /*add_head=*/true, /*add_tail=*/false, sentinel);
}

Result<std::vector<int32_t>> Tokenizer::EncodeWith(std::string_view text, bool parse_special, bool add_head,
                                                   bool add_tail, char32_t sentinel) const {
  if (text.size() > kEncodeBytesMax) {
    return Fail(ErrorCode::kTooLarge, "the text has " + std::to_string(text.size()) + " bytes; at most " +
                                          std::to_string(kEncodeBytesMax) + " are encoded");
  }
  const ts_encode_options options{parse_special, add_head, add_tail, static_cast<uint32_t>(sentinel)};
  ShimIds ids;
  ShimBuffer err;
  const ts_status status = ts_encode(handle_, ShimBytes(text), text.size(), &options, ids.raw(), err.raw());
  if (status != TS_OK) return Fail(ShimError(status, err, ErrorCode::kInvalidArgument));
  return ids.ToVector();
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  ts_token token{};
  if (!ts_tokenizer_token(handle_, static_cast<uint32_t>(id), &token)) return {};
  return {reinterpret_cast<const char*>(token.bytes), token.bytes_len};
}

std::string_view Tokenizer::TokenText(int32_t id) const {
  ts_token token{};
  if (!ts_tokenizer_token(handle_, static_cast<uint32_t>(id), &token)) return {};
  return {reinterpret_cast<const char*>(token.text), token.text_len};
}

bool Tokenizer::IsControl(int32_t id) const {
  ts_token token{};
  if (!ts_tokenizer_token(handle_, static_cast<uint32_t>(id), &token)) return false;
  return token.kind == kTypeControl || token.kind == kTypeUnknown;
}

}  // namespace headrace
