// Answers of /v1/chat/completions and /v1/completions, written straight into text: required keys are always there
// (C33), null where they say nothing. Free functions, any thread. Ids are the caller's ("chatcmpl-...", "cmpl-...").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

enum class FinishReason : uint8_t { kStop, kLength, kToolCalls, kContentFilter };
std::string_view FinishReasonName(FinishReason reason);

// What is written for a log-probability that is lower or not finite; clients compute with it (C14).
constexpr float kLogprobFloor = -9999.0f;

struct TopLogprob {
  std::string token;  // as text; what is not UTF-8 is written as U+FFFD
  std::string bytes;  // exact: the bytes of all tokens joined are the answer's text
  float logprob = 0;
};

struct TokenLogprob {
  std::string token;
  std::string bytes;
  std::optional<float> logprob;  // absent for the first token of an echoed prompt: nothing precedes it
  std::vector<TopLogprob> top;
};

struct Usage {
  int64_t prompt_tokens = 0;  // once, however many choices
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t cache_write_tokens = 0;
  int64_t reasoning_tokens = 0;
  int64_t accepted_prediction_tokens = 0;
  int64_t rejected_prediction_tokens = 0;
};

// The same in an answer and in every chunk of a stream.
struct ResponseHead {
  std::string id;
  int64_t created = 0;  // Unix seconds
  std::string model;    // as the client named it (M4)
  std::string system_fingerprint;
  std::string service_tier;  // "": not written
};

struct ChatChoice {
  int index = 0;
  std::string content;
  std::string reasoning;  // written as reasoning and reasoning_content unless empty (C5)
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<std::vector<TokenLogprob>> logprobs;
};

struct CompletionChoice {
  int index = 0;
  std::string text;
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<std::vector<TokenLogprob>> logprobs;
};

std::string ChatCompletionBody(const ResponseHead& head, std::span<const ChatChoice> choices, const Usage& usage);
std::string CompletionBody(const ResponseHead& head, std::span<const CompletionChoice> choices, const Usage& usage);

}  // namespace headrace
