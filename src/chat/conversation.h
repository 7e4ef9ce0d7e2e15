// The messages so far, and the request that continues them. Pure; one thread.
#pragma once

#include <string>

#include "api/request.h"
#include "chat/chat_settings.h"
#include "json/json.h"

namespace headrace {

// A base model rarely ends by itself; this is what it writes unless max_tokens says otherwise.
constexpr int64_t kCompletionTokensDefault = 256;

class Conversation {
 public:
  void AddUser(std::string text) { Add("user", std::move(text)); }
  void AddAssistant(std::string text) { Add("assistant", std::move(text)); }
  // An unanswered message leaves, so that roles keep alternating. REQUIRES: not empty.
  void DropLast() { messages_.pop_back(); }
  void Clear() { messages_.clear(); }
  bool empty() const { return messages_.empty(); }

  // The next answer of a model with a chat template: all messages, the system prompt first.
  GenerationRequest ChatRequest(const ChatSettings& settings) const;
  // The continuation of the last message alone, for a model without one. REQUIRES: not empty.
  GenerationRequest CompletionRequest(const ChatSettings& settings) const;
  // {"model", "settings", "messages"}, the messages as the API takes them.
  Json Transcript(std::string_view model, const ChatSettings& settings) const;

 private:
  void Add(std::string_view role, std::string text);
  Json WithSystem(const ChatSettings& settings) const;

  Json::array_t messages_;
};

}  // namespace headrace
