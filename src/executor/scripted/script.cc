#include "executor/scripted/script.h"

#include <fmt/format.h>

#include <map>

#include "json/json.h"
#include "json/json_fields.h"

namespace headrace {
namespace {

void AppendUtf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 63));
  }
}

class ScriptReader {
 public:
  Result<Script> Read(std::string_view text) {
    HR_ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.bytes_max = kScriptBytesMax}));
    HR_ASSIGN_OR_RETURN(JsonFields top, JsonFields::Of(json, ""));
    HR_RETURN_IF_ERROR(ReadNumbers(top));
    HR_ASSIGN_OR_RETURN(const Json* replies, top.Array("replies", kScriptRepliesMax));
    if (replies == nullptr || replies->empty())
      return Fail(ErrorCode::kInvalidArgument, "a script needs at least one reply", "replies");
    for (size_t i = 0; i < replies->size(); ++i)
      HR_RETURN_IF_ERROR(ReadReply((*replies)[i], fmt::format("replies[{}]", i)));
    const std::vector<std::string> unread = top.Unread(1);
    if (!unread.empty())
      return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a field of a script", unread[0]), unread[0]);
    return std::move(script_);
  }

 private:
  static Status ReadInto(JsonFields& fields, std::string_view key, int64_t low, int64_t high, int64_t scale,
                         auto* out) {
    HR_ASSIGN_OR_RETURN(const std::optional<int64_t> value, fields.Integer(key, low, high));
    if (value) *out = static_cast<std::remove_pointer_t<decltype(out)>>(*value * scale);
    return {};
  }

  Status ReadNumbers(JsonFields& top) {
    HR_RETURN_IF_ERROR(ReadInto(top, "context", 16, 1 << 24, 1, &script_.context));
    HR_RETURN_IF_ERROR(ReadInto(top, "kv_blocks", 1, 1 << 20, 1, &script_.kv_blocks));
    HR_RETURN_IF_ERROR(ReadInto(top, "sequences_max", 1, 1024, 1, &script_.sequences_max));
    HR_RETURN_IF_ERROR(ReadInto(top, "batch_tokens_max", 1, 1 << 16, 1, &script_.batch_tokens_max));
    HR_RETURN_IF_ERROR(ReadInto(top, "drafts_max", 0, 15, 1, &script_.drafts_max));
    HR_RETURN_IF_ERROR(ReadInto(top, "step_ms", 0, 60'000, 1000, &script_.step_us));
    HR_RETURN_IF_ERROR(ReadInto(top, "prefill_us_per_token", 0, 1'000'000, 1, &script_.prefill_us_per_token));
    return ReadInto(top, "load_ms", 0, 600'000, 1, &script_.load_ms);
  }

  Status ReadReply(const Json& json, const std::string& path) {
    HR_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, path));
    ScriptReply reply;
    HR_ASSIGN_OR_RETURN(const std::optional<std::string> match, fields.String("match", kScriptBytesMax));
    reply.match = match.value_or("");
    HR_RETURN_IF_ERROR(ReadInto(fields, "delay_ms", 0, 600'000, 1000, &reply.delay_us));
    HR_RETURN_IF_ERROR(ReadInto(fields, "fault_at", 0, 1 << 24, 1, &reply.fault_at));
    HR_ASSIGN_OR_RETURN(const std::optional<bool> bytes, fields.Bool("bytes"));
    int64_t repeat = 1;
    HR_RETURN_IF_ERROR(ReadInto(fields, "repeat", 1, 1 << 20, 1, &repeat));
    HR_ASSIGN_OR_RETURN(const Json* pieces, fields.Array("pieces", kScriptTokensMax));
    if (pieces == nullptr) return Fail(ErrorCode::kInvalidArgument, "a reply needs pieces", path + ".pieces");
    for (const Json& piece : *pieces) {
      if (!piece.is_string() || piece.get_ref<const std::string&>().empty()) {
        return Fail(ErrorCode::kInvalidArgument, "a piece is a string that is not empty", path + ".pieces");
      }
      AppendTokens(piece.get_ref<const std::string&>(), bytes.value_or(false), &reply.tokens);
    }
    tokens_ += reply.tokens.size() * static_cast<size_t>(repeat);
    if (tokens_ > kScriptTokensMax) {
      return Fail(
          ErrorCode::kTooLarge,
          fmt::format("the replies up to here have more than {} tokens together; repeat less, or use two scripts",
                      kScriptTokensMax),
          path);
    }
    const std::vector<int32_t> once = reply.tokens;
    for (int64_t i = 1; i < repeat; ++i) reply.tokens.insert(reply.tokens.end(), once.begin(), once.end());
    script_.replies.push_back(std::move(reply));
    return {};
  }

  void AppendTokens(const std::string& piece, bool bytes, std::vector<int32_t>* tokens) {
    if (!bytes) return tokens->push_back(TokenOf(piece));
    for (const char c : piece) tokens->push_back(static_cast<uint8_t>(c));
  }

  int32_t TokenOf(const std::string& piece) {
    if (piece.size() == 1) return static_cast<uint8_t>(piece[0]);
    const auto [it, added] = ids_.try_emplace(piece, kScriptFirstPiece + static_cast<int32_t>(ids_.size()));
    if (added) script_.pieces.push_back(piece);
    return it->second;
  }

  Script script_;
  size_t tokens_ = 0;  // of all replies read
  std::map<std::string, int32_t> ids_;
};

}  // namespace

Result<Script> ParseScript(std::string_view json) { return ScriptReader().Read(json); }

std::string ByteLevelSpelling(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    const auto printable = [](uint32_t b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
    uint32_t code = byte;
    if (!printable(byte)) {
      code = 256;
      for (uint32_t b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
    }
    AppendUtf8(out, code);
  }
  return out;
}

Vocabulary ScriptVocabulary(const Script& script) {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "default";
  for (int b = 0; b < 256; ++b) v.tokens.push_back(ByteLevelSpelling(std::string(1, static_cast<char>(b))));
  v.types.assign(256, 1);
  v.tokens.insert(v.tokens.end(), {"<|im_end|>", "<|im_start|>"});
  v.types.insert(v.types.end(), {3, 3});
  for (const std::string& piece : script.pieces) {
    v.tokens.push_back(ByteLevelSpelling(piece));
    v.types.push_back(1);
  }
  v.eos = kScriptEnd;
  return v;
}

}  // namespace headrace
