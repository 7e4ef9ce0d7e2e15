// Errors as OpenAI-compatible clients read them: status, body, retry headers (T3, T4, T6, T9, T17). The only place that
// maps base's Error to a protocol. Free functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace headrace {

struct HttpError {
  int status = 500;
  std::string body;  // {"error":{"message","type","param","code"}}, all four keys
  std::vector<std::pair<std::string, std::string>> headers;
};

// A fault of ours (kInternal, kIo, kCorruptData) gets a generic text: the caller logs the real one, which may name
// files.
HttpError ToOpenAiError(const Error& error);

// The JSON of the event that ends a broken stream; no "[DONE]" follows it (C27, O-05).
std::string StreamErrorEvent(const Error& error);

// The prompt leaves no room in the model's context. max_tokens: what the client asked for, if it did. Coding agents
// recognise "maximum context length is N tokens" and compact their history (T6, O-24).
Error ContextLengthError(int64_t context_tokens, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                         std::string field = "messages");
// The same for a KV pool that is smaller than the context (O-26).
Error KvPoolLimitError(int64_t pool_tokens, int64_t prompt_tokens, std::optional<int64_t> max_tokens,
                       std::string field = "messages");

// 404 that names the models there are, the nearest name first (T5).
Error ModelNotFoundError(std::string_view requested, std::span<const std::string> existing);

}  // namespace headrace
