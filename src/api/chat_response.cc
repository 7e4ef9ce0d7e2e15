#include "api/wire.h"
#include "json/json.h"

namespace headrace {
namespace {

void AppendChoice(std::string& out, const ChatChoice& choice) {
  out += R"({"index":)";
  AppendJsonInteger(out, choice.index);
  out += R"(,"message":{"role":"assistant","content":)";
  AppendJsonString(out, choice.content);
  out += R"(,"refusal":null)";
  if (!choice.reasoning.empty()) {
    out += R"(,"reasoning":)";
    AppendJsonString(out, choice.reasoning);
    out += R"(,"reasoning_content":)";
    AppendJsonString(out, choice.reasoning);
  }
  out += R"(},"logprobs":)";
  if (choice.logprobs) {
    AppendChatLogprobs(out, *choice.logprobs);
  } else {
    out += "null";
  }
  out += R"(,"finish_reason":")";
  out += FinishReasonName(choice.finish_reason);
  out += "\"}";
}

void AppendCount(std::string& out, std::string_view key, int64_t count) {
  out += key;
  AppendJsonInteger(out, count);
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kContentFilter:
      return "content_filter";
  }
  return "stop";
}

void AppendHead(std::string& out, const ResponseHead& head, std::string_view object) {
  out += R"({"id":)";
  AppendJsonString(out, head.id);
  out += R"(,"object":)";
  AppendJsonString(out, object);
  AppendCount(out, R"(,"created":)", head.created);
  out += R"(,"model":)";
  AppendJsonString(out, head.model);
  out += R"(,"system_fingerprint":)";
  AppendJsonString(out, head.system_fingerprint);
  if (head.service_tier.empty()) return;
  out += R"(,"service_tier":)";
  AppendJsonString(out, head.service_tier);
}

void AppendUsageObject(std::string& out, const Usage& usage) {
  AppendCount(out, R"({"prompt_tokens":)", usage.prompt_tokens);
  AppendCount(out, R"(,"completion_tokens":)", usage.completion_tokens);
  AppendCount(out, R"(,"total_tokens":)", usage.prompt_tokens + usage.completion_tokens);
  AppendCount(out, R"(,"prompt_tokens_details":{"cached_tokens":)", usage.cached_tokens);
  AppendCount(out, R"(,"cache_write_tokens":)", usage.cache_write_tokens);
  AppendCount(out, R"(},"completion_tokens_details":{"reasoning_tokens":)", usage.reasoning_tokens);
  AppendCount(out, R"(,"accepted_prediction_tokens":)", usage.accepted_prediction_tokens);
  AppendCount(out, R"(,"rejected_prediction_tokens":)", usage.rejected_prediction_tokens);
  out += "}}";
}

std::string ChatCompletionBody(const ResponseHead& head, std::span<const ChatChoice> choices, const Usage& usage) {
  std::string out;
  AppendHead(out, head, "chat.completion");
  out += R"(,"choices":[)";
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) out += ',';
    AppendChoice(out, choices[i]);
  }
  out += R"(],"usage":)";
  AppendUsageObject(out, usage);
  out += '}';
  return out;
}

}  // namespace headrace
