#include "chat/input_reader.h"

#include <fmt/format.h>

#include <utility>

#include "json/json.h"

namespace headrace {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

ChatInput InputReader::Take(std::string_view line) {
  if (!inside_) return Start(Trimmed(line));
  if (!just_opened_) text_ += '\n';
  just_opened_ = false;
  return Continue(line);
}

void InputReader::Discard() {
  text_.clear();
  inside_ = false;
  just_opened_ = false;
  quoted_ = false;
}

ChatInput InputReader::Start(std::string_view line) {
  if (line.empty()) return {};
  const size_t quotes = line.find(kQuotes);
  // In the middle of a message they are text; a command may have its argument quoted.
  const bool opens = quotes == 0 || (line[0] == '/' && quotes != std::string_view::npos);
  if (!opens) return Finish(std::string(line));
  text_ = line.substr(0, quotes);
  inside_ = true;
  quoted_ = quotes == 0;
  line.remove_prefix(quotes + kQuotes.size());
  just_opened_ = line.empty();
  return Continue(line);
}

ChatInput InputReader::Continue(std::string_view rest) {
  const std::string_view trimmed = rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
  const bool closes = trimmed.ends_with(kQuotes);
  if (trimmed == kQuotes && text_.ends_with('\n')) text_.pop_back();
  text_ += closes ? trimmed.substr(0, trimmed.size() - kQuotes.size()) : rest;
  if (text_.size() > kMessageBytesMax) return Finish(std::move(text_));
  if (!closes) return {ChatInput::Kind::kMore, {}};
  return Finish(std::move(text_));
}

ChatInput InputReader::Finish(std::string text) {
  const bool command = text.starts_with('/') && !quoted_;
  Discard();
  if (text.size() > kMessageBytesMax) {
    return {ChatInput::Kind::kRefused,
            fmt::format("a message has at most {} MiB; this one was dropped", kMessageBytesMax >> 20)};
  }
  if (std::string why = WhyNotText(text); !why.empty()) return {ChatInput::Kind::kRefused, std::move(why)};
  if (Trimmed(text).empty()) return {};
  return {command ? ChatInput::Kind::kCommand : ChatInput::Kind::kMessage, std::move(text)};
}

std::string WhyNotText(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = text[at] == '\0' ? 0 : Utf8SequenceBytes(text.substr(at));
    if (bytes == 0) return fmt::format("the prompt is not text: byte {} is not UTF-8", at);
    at += bytes;
  }
  return {};
}

}  // namespace headrace
