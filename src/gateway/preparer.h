// The prepare stage: a parsed request becomes token ids. Immutable, thread-safe; runs on the text pool.
#pragma once

#include <optional>

#include "api/request.h"
#include "api/tokenize.h"
#include "gateway/backend.h"
#include "text/prompt.h"
#include "text/tokenizer.h"

namespace headrace {

// Template arguments that a request may set.
constexpr std::string_view kTemplateArgumentsAllowed[] = {"enable_thinking", "thinking", "reasoning_effort",
                                                          "date_string", "documents"};

class Preparer {
 public:
  // `prompts` is null for a base model without a chat template. Borrows both.
  Preparer(const Tokenizer& tokenizer, const PromptEncoder* prompts, SamplingDefaults defaults)
      : tokenizer_(tokenizer), prompts_(prompts), defaults_(defaults) {}

  // Fills prompts, seed and sampling defaults of `request` from request->api.
  Status Prepare(PreparedRequest* request) const;
  Result<std::vector<int32_t>> Tokenize(const TokenizeRequest& request) const;
  const Tokenizer& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return prompts_ != nullptr; }

 private:
  Result<std::vector<int32_t>> EncodeChat(const Json& messages, bool add_generation_prompt, bool continue_final_message,
                                          const Json& arguments) const;
  Status EncodeCompletions(PreparedRequest* request) const;
  // kInvalidArgument at the field that named it, with the compiler's words.
  Status CompileGrammar(const Constraint& constraint, std::shared_ptr<const Grammar>* out) const;

  const Tokenizer& tokenizer_;
  const PromptEncoder* const prompts_;
  const SamplingDefaults defaults_;
};

}  // namespace headrace
