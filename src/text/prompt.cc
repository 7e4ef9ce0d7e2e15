#include "text/prompt.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace headrace {
namespace {

using Json = nlohmann::ordered_json;

// A spelling is broken up from its first three characters on, not only where it is complete: templates cut and join
// strings (content parts, split on "</think>"), and two harmless halves must not make a whole. Three tell "</s>" from
// "</think>", which templates look for.
constexpr int kPrefixChars = 3;

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

size_t CharBytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

std::string FirstChars(std::string_view text, int chars) {
  size_t end = 0;
  for (int i = 0; i < chars && end < text.size(); ++i) end += CharBytes(text[end]);
  std::string first(text.substr(0, end));
  std::ranges::transform(first, first.begin(), LowerAscii);
  return first;
}

std::string Utf8(char32_t c) {
  std::string out;
  if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
  }
  out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
  out += static_cast<char>(0x80 | (c & 0x3F));
  return out;
}

// The first two of Unicode's 66 noncharacters that occur in neither text; they are reserved for uses like this one.
std::vector<char32_t> FreeNoncharacters(std::string_view a, std::string_view b) {
  constexpr size_t kWanted = 2;
  std::vector<char32_t> found;
  const auto look_at = [&](char32_t c) {
    if (found.size() < kWanted && !a.contains(Utf8(c)) && !b.contains(Utf8(c))) found.push_back(c);
  };
  for (char32_t c = 0xFDD0; c <= 0xFDEF; ++c) look_at(c);
  for (char32_t plane = 0; plane <= 16; ++plane) {
    for (char32_t low : {0xFFFEu, 0xFFFFu}) look_at(plane << 16 | low);
  }
  return found;
}

// Everything after this recurses over the value.
Status CheckDepth(const Json& value, int depth) {
  if (depth > kContextDepthMax) {
    return Fail(ErrorCode::kInvalidArgument,
                "the request is nested more than " + std::to_string(kContextDepthMax) + " levels deep", "messages");
  }
  if (value.is_structured()) {
    for (const Json& item : value) HR_RETURN_IF_ERROR(CheckDepth(item, depth + 1));
  }
  return {};
}

// dump() throws on strings that are not UTF-8.
Result<std::string> Dump(const Json& value) {
  try {
    return value.dump();
  } catch (const Json::exception&) {
    return Fail(ErrorCode::kInvalidArgument, "a string of the request is not valid UTF-8", "messages");
  }
}

std::string Without(std::string_view text, std::string_view sentinel) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t found; (found = text.find(sentinel, at)) != std::string::npos; at = found + sentinel.size()) {
    out.append(text, at, found - at);
  }
  return out.append(text, at);
}

// The place where the text of the last message ends, as a character that no template knows and a blank.
Status TagLastMessage(std::string_view tag, Json* context) {
  const auto messages = context->find("messages");
  if (messages != context->end() && messages->is_array() && !messages->empty() && messages->back().is_object()) {
    const auto content = messages->back().find("content");
    if (content != messages->back().end() && content->is_string()) {
      content->get_ref<std::string&>().append(tag).append(" ");
      return {};
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "only a final message with a text can be continued", "messages");
}

// A template that trims messages has taken the tag's blank, and would have taken those in front of the tag.
Status CutAtTag(std::string_view tag, std::string* text) {
  const size_t end = text->rfind(tag);
  if (end == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument,
                "the chat template does not write the final message: it cannot be continued", "messages");
  }
  const bool trimmed = !std::string_view(*text).substr(end + tag.size()).starts_with(' ');
  text->resize(end);
  if (trimmed) text->resize(text->find_last_not_of(" \t\r\n") + 1);
  *text = Without(*text, tag);  // written more than once
  return {};
}

}  // namespace

PromptEncoder::PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template)
    : tokenizer_(tokenizer), chat_template_(chat_template) {
  for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
    if (tokenizer_.IsControl(id) && !tokenizer_.TokenText(id).empty()) {
      prefixes_.push_back(FirstChars(tokenizer_.TokenText(id), kPrefixChars));
    }
  }
  std::ranges::sort(prefixes_);
  const auto repeated = std::ranges::unique(prefixes_);
  prefixes_.erase(repeated.begin(), repeated.end());
}

Result<RenderedPrompt> PromptEncoder::Encode(const Json& context, Ending ending, const RenderLimits& limits) const {
  if (!context.is_object()) return Fail(ErrorCode::kInvalidArgument, "the template's context is not an object");
  HR_RETURN_IF_ERROR(CheckDepth(context, 0));
  HR_ASSIGN_OR_RETURN(const std::string plain, Dump(context));
  const std::vector<char32_t> free = FreeNoncharacters(plain, chat_template_.source());
  if (free.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument, "the request uses every Unicode noncharacter; leave two out", "messages");
  }
  const std::string mark = Utf8(free[0]), tag = Utf8(free[1]);
  Json marked = MarkAll(context, mark);
  marked["bos_token"] = tokenizer_.BosText();
  marked["eos_token"] = tokenizer_.EosText();
  if (ending == Ending::kInsideLastMessage) HR_RETURN_IF_ERROR(TagLastMessage(tag, &marked));
  HR_ASSIGN_OR_RETURN(const std::string marked_json, Dump(marked));
  HR_ASSIGN_OR_RETURN(std::string text, chat_template_.Render(marked_json, limits));
  if (ending == Ending::kInsideLastMessage) HR_RETURN_IF_ERROR(CutAtTag(tag, &text));
  RenderedPrompt prompt;
  HR_ASSIGN_OR_RETURN(prompt.ids, tokenizer_.EncodeRendered(text, free[0]));
  prompt.text = Without(text, mark);
  return prompt;
}

// Recursion: at most kContextDepthMax levels, checked before.
Json PromptEncoder::MarkAll(const Json& value, std::string_view sentinel) const {
  if (value.is_string()) return Mark(value.get_ref<const std::string&>(), sentinel);
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(MarkAll(item, sentinel));
    return out;
  }
  if (value.is_object()) {
    Json out = Json::object();
    // Marked keys stay different from each other; the map's own insertion would search for each, in quadratic time.
    auto& pairs = out.get_ref<Json::object_t&>();
    for (const auto& [key, item] : value.items()) pairs.emplace_back(Mark(key, sentinel), MarkAll(item, sentinel));
    return out;
  }
  return value;
}

std::string PromptEncoder::Mark(std::string_view text, std::string_view sentinel) const {
  std::string out;
  out.reserve(text.size() + 8);
  for (size_t at = 0; at < text.size();) {
    const size_t width = std::min(CharBytes(text[at]), text.size() - at);
    out.append(text, at, width);
    if (StartsControl(text.substr(at))) out.append(sentinel);
    at += width;
  }
  return out;
}

// Does `rest` begin with a control token's first characters, or end before it can be told?
bool PromptEncoder::StartsControl(std::string_view rest) const {
  return std::ranges::any_of(prefixes_, [&](const std::string& prefix) {
    const size_t bytes = std::min(prefix.size(), rest.size());
    return std::ranges::equal(rest.substr(0, bytes), std::string_view(prefix).substr(0, bytes),
                              [](char a, char b) { return LowerAscii(a) == b; });
  });
}

}  // namespace headrace
