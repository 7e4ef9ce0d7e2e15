#include "text/grammar.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "text/shim.h"

namespace headrace {
namespace {

ts_grammar_kind ShimKind(GrammarKind kind) {
  return kind == GrammarKind::kJsonSchema ? TS_JSON_SCHEMA : kind == GrammarKind::kRegex ? TS_REGEX : TS_LARK;
}

ptrdiff_t RulesOf(GrammarKind kind, std::string_view text) {
  if (kind == GrammarKind::kLark) return std::ranges::count(text, ':');
  ptrdiff_t references = 0;
  for (const std::string_view name : {"$ref", "\\u00"}) {  // which an escape may spell, too
    for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + name.size())) ++references;
  }
  return references;
}

}  // namespace

Result<std::unique_ptr<Grammar>> Grammar::Compile(const Tokenizer& tokenizer, GrammarKind kind, std::string_view text) {
  if (text.size() > kGrammarBytesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a grammar of {} bytes; at most {} are read", text.size(), kGrammarBytesMax));
  }
  if (kind != GrammarKind::kRegex && RulesOf(kind, text) > kGrammarRulesMax) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("it has more than {} {}", kGrammarRulesMax,
                            kind == GrammarKind::kLark ? "colons, one for each rule" : "references ($ref)"));
  }
  ShimBuffer err;
  ts_matcher* matcher = nullptr;
  const ts_status status =
      ts_matcher_new(tokenizer.shim(), ShimKind(kind), ShimBytes(text), text.size(), &matcher, err.raw());
  if (status != TS_OK) return std::unexpected(ShimError(status, err, ErrorCode::kInvalidArgument));
  return std::unique_ptr<Grammar>(new Grammar(matcher));
}

Grammar::~Grammar() { ts_matcher_free(matcher_); }

Result<std::unique_ptr<Grammar>> Grammar::Clone() const {
  ShimBuffer err;
  ts_matcher* matcher = nullptr;
  const ts_status status = ts_matcher_clone(matcher_, &matcher, err.raw());
  if (status != TS_OK) return std::unexpected(ShimError(status, err, ErrorCode::kInternal));
  std::unique_ptr<Grammar> clone(new Grammar(matcher));
  clone->done_ = done_;
  return clone;
}

Status Grammar::Mask(std::span<uint32_t> words) {
  std::ranges::fill(words, 0);
  ShimBuffer err;
  const ts_status status = ts_matcher_mask(matcher_, words.data(), words.size(), err.raw());
  CHECK(status != TS_TOO_SMALL);
  if (status != TS_OK) return std::unexpected(ShimError(status, err, ErrorCode::kInvalidArgument));
  return {};
}

Status Grammar::Commit(int32_t token) {
  ShimBuffer err;
  const ts_status status = ts_matcher_commit(matcher_, static_cast<uint32_t>(token), &done_, err.raw());
  if (status != TS_OK) return std::unexpected(ShimError(status, err, ErrorCode::kInvalidArgument));
  return {};
}

}  // namespace headrace
