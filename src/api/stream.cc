#include "api/stream.h"

#include "api/wire.h"
#include "base/check.h"
#include "json/json.h"

namespace headrace {
namespace {

void AppendFinishReason(std::string& out, const FinishReason* reason) {
  out += R"(,"finish_reason":)";
  if (reason == nullptr) {
    out += "null";
    return;
  }
  out += '"';
  out += FinishReasonName(*reason);
  out += '"';
}

void AppendUsageChunk(std::string& out, const ChunkFrame& frame, const Usage& usage) {
  CHECK(frame.include_usage);
  out += frame.before;
  out += R"(],"usage":)";
  AppendUsageObject(out, usage);
  out += frame.end;
}

}  // namespace

ChunkFrame::ChunkFrame(const ResponseHead& head, std::string_view object, bool with_usage, ChunkFraming framing)
    : include_usage(with_usage) {
  if (framing == ChunkFraming::kSse) before = "data: ";
  AppendHead(before, head, object);
  before += R"(,"choices":[)";
  end = framing == ChunkFraming::kSse ? "}\n\n" : "}";
  after = (with_usage ? R"(],"usage":null)" : "]") + end;
}

ChatChunkWriter::ChatChunkWriter(const ResponseHead& head, bool include_usage, ChunkFraming framing)
    : frame_(head, "chat.completion.chunk", include_usage, framing) {}

void ChatChunkWriter::Begin(std::string& out, int index) const {
  out += frame_.before;
  out += R"({"index":)";
  AppendJsonInteger(out, index);
  out += R"(,"delta":{)";
}

void ChatChunkWriter::End(std::string& out, const std::vector<TokenLogprob>* logprobs,
                          const FinishReason* reason) const {
  out += R"(},"logprobs":)";
  if (logprobs != nullptr && !logprobs->empty()) {
    AppendChatLogprobs(out, *logprobs);
  } else {
    out += "null";
  }
  AppendFinishReason(out, reason);
  out += '}';
  out += frame_.after;
}

void ChatChunkWriter::AppendRole(std::string& out, int index) const {
  Begin(out, index);
  out += R"("role":"assistant","content":"","refusal":null)";
  End(out, nullptr, nullptr);
}

bool ChatChunkWriter::AppendText(std::string& out, int index, std::string_view text,
                                 const std::vector<TokenLogprob>* logprobs) const {
  if (text.empty()) return false;
  Begin(out, index);
  out += R"("content":)";
  AppendJsonString(out, text);
  End(out, logprobs, nullptr);
  return true;
}

bool ChatChunkWriter::AppendReasoning(std::string& out, int index, std::string_view text) const {
  if (text.empty()) return false;
  Begin(out, index);
  out += R"("reasoning":)";
  AppendJsonString(out, text);
  out += R"(,"reasoning_content":)";
  AppendJsonString(out, text);
  End(out, nullptr, nullptr);
  return true;
}

void ChatChunkWriter::AppendFinish(std::string& out, int index, FinishReason reason,
                                   const std::vector<TokenLogprob>* logprobs) const {
  Begin(out, index);
  End(out, logprobs, &reason);
}

void ChatChunkWriter::AppendUsage(std::string& out, const Usage& usage) const { AppendUsageChunk(out, frame_, usage); }

CompletionChunkWriter::CompletionChunkWriter(const ResponseHead& head, int choices, bool include_usage,
                                             ChunkFraming framing)
    : frame_(head, "text_completion", include_usage, framing), text_offsets_(static_cast<size_t>(choices), 0) {}

void CompletionChunkWriter::AppendChunk(std::string& out, int index, std::string_view text,
                                        const std::vector<TokenLogprob>* logprobs, const FinishReason* reason) {
  CHECK(index >= 0 && static_cast<size_t>(index) < text_offsets_.size());
  out += frame_.before;
  out += R"({"index":)";
  AppendJsonInteger(out, index);
  out += R"(,"text":)";
  AppendJsonString(out, text);
  out += R"(,"logprobs":)";
  if (logprobs != nullptr && !logprobs->empty()) {
    AppendCompletionLogprobs(out, *logprobs, &text_offsets_[static_cast<size_t>(index)]);
  } else {
    out += "null";
  }
  AppendFinishReason(out, reason);
  out += '}';
  out += frame_.after;
}

bool CompletionChunkWriter::AppendText(std::string& out, int index, std::string_view text,
                                       const std::vector<TokenLogprob>* logprobs) {
  if (text.empty()) return false;
  AppendChunk(out, index, text, logprobs, nullptr);
  return true;
}

void CompletionChunkWriter::AppendFinish(std::string& out, int index, FinishReason reason,
                                         const std::vector<TokenLogprob>* logprobs) {
  AppendChunk(out, index, "", logprobs, &reason);
}

void CompletionChunkWriter::AppendUsage(std::string& out, const Usage& usage) const {
  AppendUsageChunk(out, frame_, usage);
}

}  // namespace headrace
