// Stream chunks (C24-C27, L3): appended to the caller's text from a prefix made once per request. No tree and, once
// `out` has grown, no allocation. A writer belongs to one thread.
//
// Order for each choice: Role (chat), Text any number of times, Finish; after all choices Usage if it was asked for,
// then kSseDone. After an error StreamErrorEvent() instead, and no kSseDone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/response.h"

namespace headrace {

constexpr std::string_view kSseDone = "data: [DONE]\n\n";

enum class ChunkFraming : uint8_t { kJson, kSse };  // the bare object, or "data: ...\n\n"

// What both kinds share: everything before the choice's index and after the choice.
struct ChunkFrame {
  ChunkFrame(const ResponseHead& head, std::string_view object, bool include_usage, ChunkFraming framing);
  std::string before;  // ... "choices":[
  std::string after;   // ]["usage":null]}
  std::string end;     // behind the usage chunk's object
  bool include_usage;
};

class ChatChunkWriter {
 public:
  // include_usage: the client asked for it; every chunk then has "usage", null but in the last.
  ChatChunkWriter(const ResponseHead& head, bool include_usage, ChunkFraming framing = ChunkFraming::kSse);

  void AppendRole(std::string& out, int index) const;
  // False, and nothing appended, when `text` is empty (C26): keep the log-probabilities for the next text or the
  // finish. `text` holds whole characters. logprobs: nullptr when not asked for.
  bool AppendText(std::string& out, int index, std::string_view text,
                  const std::vector<TokenLogprob>* logprobs = nullptr) const;
  bool AppendReasoning(std::string& out, int index, std::string_view text) const;
  void AppendFinish(std::string& out, int index, FinishReason reason,
                    const std::vector<TokenLogprob>* logprobs = nullptr) const;
  // REQUIRES: include_usage.
  void AppendUsage(std::string& out, const Usage& usage) const;

 private:
  void Begin(std::string& out, int index) const;
  void End(std::string& out, const std::vector<TokenLogprob>* logprobs, const FinishReason* reason) const;

  ChunkFrame frame_;
};

class CompletionChunkWriter {
 public:
  // choices: prompts x n.
  CompletionChunkWriter(const ResponseHead& head, int choices, bool include_usage,
                        ChunkFraming framing = ChunkFraming::kSse);

  // As for chat. An echoed prompt is the first text of its choice. REQUIRES: 0 <= index < choices.
  bool AppendText(std::string& out, int index, std::string_view text,
                  const std::vector<TokenLogprob>* logprobs = nullptr);
  void AppendFinish(std::string& out, int index, FinishReason reason,
                    const std::vector<TokenLogprob>* logprobs = nullptr);
  void AppendUsage(std::string& out, const Usage& usage) const;

 private:
  void AppendChunk(std::string& out, int index, std::string_view text, const std::vector<TokenLogprob>* logprobs,
                   const FinishReason* reason);

  ChunkFrame frame_;
  std::vector<int64_t> text_offsets_;  // characters sent with log-probabilities, for each choice
};

}  // namespace headrace
