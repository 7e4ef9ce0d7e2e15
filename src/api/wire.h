// Pieces that answers and stream chunks share. Internal to api/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/response.h"

namespace headrace {

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...[,"service_tier":...]  without the closing
// brace.
void AppendHead(std::string& out, const ResponseHead& head, std::string_view object);
// {"prompt_tokens":...}
void AppendUsageObject(std::string& out, const Usage& usage);
// {"content":[...],"refusal":null}
void AppendChatLogprobs(std::string& out, std::span<const TokenLogprob> tokens);
// {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]}; offsets count characters from
// *text_offset on, which moves behind the last token.
void AppendCompletionLogprobs(std::string& out, std::span<const TokenLogprob> tokens, int64_t* text_offset);

}  // namespace headrace
