#include "chat/conversation.h"

#include <utility>

namespace headrace {
namespace {

Json Message(std::string_view role, std::string text) {
  Json message = Json::object();
  message["role"] = role;
  message["content"] = std::move(text);
  return message;
}

}  // namespace

void Conversation::Add(std::string_view role, std::string text) { messages_.push_back(Message(role, std::move(text))); }

GenerationRequest Conversation::ChatRequest(const ChatSettings& settings) const {
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kChat;
  request.model = "chat";
  request.messages = WithSystem(settings);
  settings.Apply(&request);
  return request;
}

GenerationRequest Conversation::CompletionRequest(const ChatSettings& settings) const {
  GenerationRequest request;
  request.kind = GenerationRequest::Kind::kCompletion;
  request.model = "chat";
  request.prompts.emplace_back(messages_.back().at("content").get<std::string>());
  settings.Apply(&request);
  if (!request.max_tokens) request.max_tokens = kCompletionTokensDefault;
  return request;
}

Json Conversation::Transcript(std::string_view model, const ChatSettings& settings) const {
  Json out = Json::object();
  out["model"] = model;
  Json set = settings.AsJson();
  set.erase("system");  // it is the first message
  out["settings"] = std::move(set);
  out["messages"] = WithSystem(settings);
  return out;
}

Json Conversation::WithSystem(const ChatSettings& settings) const {
  Json all = Json::array();
  if (!settings.system().empty()) all.push_back(Message("system", settings.system()));
  for (const Json& message : messages_) all.push_back(message);
  return all;
}

}  // namespace headrace
