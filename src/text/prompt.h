// Messages to token ids through the model's chat template.
//
// The law: control tokens come from the template only. Every string of the request (messages, tools, template
// arguments, their keys too) that spells a control token is encoded as plain characters, so that nobody can forge a
// turn. How: a Unicode noncharacter that occurs nowhere in the request is put behind the first character of each such
// spelling, the template runs, true control tokens are found in the result, and the noncharacter is dropped.
//
// Thread-safe: immutable after construction.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

// Deeper requests are refused: JSON parsers below us stop at 128 levels.
constexpr int kContextDepthMax = 100;

struct RenderedPrompt {
  std::vector<int32_t> ids;
  std::string text;  // what the template wrote; to show, not to encode again
};

class PromptEncoder {
 public:
  // Borrows both, which must outlive it.
  PromptEncoder(const Tokenizer& tokenizer, const ChatTemplate& chat_template);

  // `context` holds messages, tools, add_generation_prompt and further template arguments. bos_token and eos_token are
  // set here, from the vocabulary. At most one BOS is added, and only if the model wants one and the template wrote
  // none. kInvalidArgument when the template refuses the messages.
  Result<RenderedPrompt> EncodeChat(const nlohmann::ordered_json& context, const RenderLimits& limits = {}) const {
    return Encode(context, Ending::kWhole, limits);
  }
  // The same, but the prompt ends with the text of the last message, for the model to go on with: what the template
  // writes behind it (the end of the turn) is cut off. Blanks at the text's end go where the template trims them, as
  // Hugging Face does it. kInvalidArgument when the last message has no text or the template does not write it.
  Result<RenderedPrompt> ContinueChat(const nlohmann::ordered_json& context, const RenderLimits& limits = {}) const {
    return Encode(context, Ending::kInsideLastMessage, limits);
  }

  // `text` with `sentinel` (UTF-8) behind the first character of whatever could be read as a control token.
  std::string Mark(std::string_view text, std::string_view sentinel) const;

 private:
  enum class Ending { kWhole, kInsideLastMessage };
  Result<RenderedPrompt> Encode(const nlohmann::ordered_json& context, Ending ending, const RenderLimits& limits) const;
  nlohmann::ordered_json MarkAll(const nlohmann::ordered_json& value, std::string_view sentinel) const;
  bool StartsControl(std::string_view rest) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_template_;
  // The first characters of each control token, at most kPrefixChars of them, lower case, sorted.
  std::vector<std::string> prefixes_;
};

}  // namespace headrace
