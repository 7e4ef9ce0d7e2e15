// What a scripted executor says: read from a JSON file (`headrace serve script:FILE`), or generated from numbers for
// the simulator. A documented feature for client developers: the whole server behind it is the real one.
// Form and meaning of the fields: docs/script_files.md. `bytes` spells pieces as models spell what their vocabulary
// lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace headrace {

struct ScriptReply {
  std::string match;
  std::vector<int32_t> tokens;  // without the end token
  int64_t delay_us = 0;         // added to every step that says one of its tokens
  int64_t fault_at = -1;
};

struct Script {
  int64_t context = 4096;
  int32_t kv_blocks = 64;
  int32_t sequences_max = 8;
  int32_t batch_tokens_max = 256;
  int32_t drafts_max = 0;  // 0: an answer comes at the pace of one token a step
  int64_t row_us = 0;      // of each row of a decode; the simulator's
  int64_t step_us = 1000;
  int64_t prefill_us_per_token = 10;
  int64_t load_ms = 0;
  int32_t letters = 26;  // that answers without replies are made of; few repeat themselves
  std::vector<ScriptReply> replies;
  // The vocabulary: 256 bytes, then kScriptEnd and the other control tokens, then the pieces of more than one byte.
  std::vector<std::string> pieces;
};

constexpr int32_t kScriptEnd = 256;    // <|im_end|>
constexpr int32_t kScriptStart = 257;  // <|im_start|>
constexpr int32_t kScriptFirstPiece = 258;

constexpr size_t kScriptBytesMax = 16 << 20;
constexpr size_t kScriptTokensMax = 4 << 20;  // of all replies
constexpr size_t kScriptRepliesMax = 10'000;

Result<Script> ParseScript(std::string_view json);

// The byte-level vocabulary that such a script speaks.
Vocabulary ScriptVocabulary(const Script& script);

// GPT-2's printable stand-in for each byte, as a byte-level vocabulary spells tokens.
std::string ByteLevelSpelling(std::string_view bytes);

}  // namespace headrace
