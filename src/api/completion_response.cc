#include "api/wire.h"
#include "json/json.h"

namespace headrace {
namespace {

void AppendChoice(std::string& out, const CompletionChoice& choice) {
  out += R"({"index":)";
  AppendJsonInteger(out, choice.index);
  out += R"(,"text":)";
  AppendJsonString(out, choice.text);
  out += R"(,"logprobs":)";
  if (choice.logprobs) {
    int64_t text_offset = 0;  // from the start of this choice's text, the echoed prompt included
    AppendCompletionLogprobs(out, *choice.logprobs, &text_offset);
  } else {
    out += "null";
  }
  out += R"(,"finish_reason":")";
  out += FinishReasonName(choice.finish_reason);
  out += "\"}";
}

}  // namespace

std::string CompletionBody(const ResponseHead& head, std::span<const CompletionChoice> choices, const Usage& usage) {
  std::string out;
  AppendHead(out, head, "text_completion");
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
