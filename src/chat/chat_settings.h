// What flags and /set change: sampling, length, stop strings, system prompt. Ranges and errors are the API's: its own
// reader checks them. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/request.h"
#include "base/result.h"
#include "chat/chat.h"
#include "json/json.h"

namespace headrace {

// Where neither the person nor the model's generation_config.json says anything. The API's own 1 draws from the whole
// tail of the vocabulary; small models lose the thread there, and a person at a terminal expects a sensible answer.
constexpr double kTemperatureDefault = 0.7;
constexpr double kTopPDefault = 0.95;

// temperature ... max_tokens, system, as /set takes them.
const std::vector<std::string>& ChatSettingNames();

class ChatSettings {
 public:
  // kInvalidArgument, with the setting as field, when a value is out of range.
  static Result<ChatSettings> From(const RunOptions& options);

  // `value` as it is typed; "default" unsets. A stop string may also be a JSON string, and several are a JSON array of
  // them. kInvalidArgument names the setting, what it takes, and near names for an unknown one; nothing changes then.
  Status Set(std::string_view name, std::string_view value);
  void Apply(GenerationRequest* request) const;

  const std::string& system() const { return system_; }                      // "": none
  std::optional<int64_t> max_tokens() const { return checked_.max_tokens; }  // unset: what the context leaves
  // Only what is set.
  Json AsJson() const;
  // One line each.
  std::string AsText() const;

 private:
  Status SetFields(Json fields);

  Json fields_ = Json::object();  // what is set, by the API's names
  GenerationRequest checked_;     // the same, read
  std::string system_;
};

}  // namespace headrace
