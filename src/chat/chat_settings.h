// What /set changes: sampling, length, system prompt. Pure; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/request.h"
#include "base/result.h"
#include "chat/chat.h"
#include "json/json.h"

namespace headrace {

// Where neither the person nor the model's generation_config.json says anything. The API's own 1 draws from the whole
// tail of the vocabulary; small models lose the thread there, and a person at a terminal expects a sensible answer.
constexpr double kTemperatureDefault = 0.7;
constexpr double kTopPDefault = 0.95;

struct ChatSettings {
  std::optional<double> temperature, top_p;  // unset: the model's own, else the above
  std::optional<int64_t> top_k;              // 0: off
  std::optional<uint64_t> seed;              // unset: drawn for each answer
  std::optional<int64_t> max_tokens;         // unset: what the context leaves
  std::string system;                        // "": none

  // kInvalidArgument, with the setting as field, when a value is out of range.
  static Result<ChatSettings> From(const RunOptions& options);

  // `value` "default" unsets. kInvalidArgument names the setting, what it takes, and near names for an unknown one.
  Status Set(std::string_view name, std::string_view value);
  void Apply(GenerationRequest* request) const;
  // Only what is set.
  Json AsJson() const;
  // One line each.
  std::string AsText() const;
};

}  // namespace headrace
