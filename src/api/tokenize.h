// vLLM's POST /tokenize and /detokenize. Free functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/limits.h"
#include "base/result.h"
#include "json/json.h"

namespace headrace {

struct TokenizeRequest {
  std::string model;  // "": the only model
  // Either a text, or messages for the chat template (normalised as for chat).
  std::optional<std::string> prompt;
  Json messages;
  bool add_special_tokens = true;  // default true for a prompt, false for messages: their template writes them
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json chat_template_kwargs = Json::object();
  bool return_token_strs = false;
  std::vector<std::string> unknown_fields;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<int32_t> tokens;  // each >= 0
  std::vector<std::string> unknown_fields;
};

Result<TokenizeRequest> ParseTokenizeRequest(std::string_view body, const ApiLimits& limits);
Result<DetokenizeRequest> ParseDetokenizeRequest(std::string_view body, const ApiLimits& limits);
// Every id lies in [0, vocab_size).
Status ValidateTokenIds(const DetokenizeRequest& request, int32_t vocab_size);

// {"count","max_model_len","tokens","token_strs"}; token_strs null when not asked for.
std::string TokenizeBody(std::span<const int32_t> tokens, int64_t max_model_len,
                         const std::vector<std::string>* token_strs);
// {"prompt"}
std::string DetokenizeBody(std::string_view prompt);

}  // namespace headrace
