#include "chat/chat_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "api/limits.h"
#include "chat/input_reader.h"
#include "config/near_names.h"

namespace headrace {
namespace {

template <typename T>
std::optional<T> WholeNumber(std::string_view text) {
  T number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// What is typed, as the API would get it. What is no number stays a text, so that the API's reader says what it takes.
Json ValueOf(std::string_view name, std::string_view text) {
  if (name == "stop") {
    // "[INST]" is a stop string too: only what is JSON is read as JSON.
    const auto json = ParseJson(text, {});
    return json && (json->is_array() || json->is_string()) ? *json : Json(std::string(text));
  }
  if (const auto integer = WholeNumber<int64_t>(text)) return *integer;
  if (const auto number = WholeNumber<double>(text); number && std::isfinite(*number)) return *number;
  return std::string(text);
}

Status CheckIsText(const Json& value, std::string_view name) {
  if (value.is_string()) {
    if (std::string why = WhyNotText(value.get_ref<const std::string&>()); !why.empty())
      return Fail(ErrorCode::kInvalidArgument, std::move(why), std::string(name));
  }
  for (const Json& item : value.is_array() ? value : Json::array()) HR_RETURN_IF_ERROR(CheckIsText(item, name));
  return {};
}

}  // namespace

const std::vector<std::string>& ChatSettingNames() {
  static const std::vector<std::string> kNames = {
      "temperature", "top_k", "top_p",      "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty",
      "seed",        "stop",  "max_tokens", "system"};
  return kNames;
}

Result<ChatSettings> ChatSettings::From(const RunOptions& options) {
  ChatSettings settings;
  // Through the same checks as what is typed later.
  HR_RETURN_IF_ERROR(settings.SetFields(options.settings));
  if (std::string why = WhyNotText(options.system); !why.empty())
    return Fail(ErrorCode::kInvalidArgument, std::move(why), "system");
  settings.system_ = options.system;
  return settings;
}

Status ChatSettings::Set(std::string_view name, std::string_view value) {
  if (name == "system") {
    system_ = value == "default" ? "" : value;
    return {};
  }
  if (std::ranges::find(ChatSettingNames(), name) == ChatSettingNames().end()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no setting '{}'.{} There are {}.", name.substr(0, 60),
                            NearSentence(name, ChatSettingNames()), fmt::join(ChatSettingNames(), ", ")),
                std::string(name.substr(0, 60)));
  }
  Json fields = fields_;
  if (value == "default")
    fields.erase(std::string(name));
  else
    fields[std::string(name)] = ValueOf(name, value);
  return SetFields(std::move(fields));
}

Status ChatSettings::SetFields(Json fields) {
  GenerationRequest checked;
  HR_RETURN_IF_ERROR(ReadChatSettings(fields, {}, &checked));
  for (const auto& [name, value] : fields.items()) HR_RETURN_IF_ERROR(CheckIsText(value, name));
  fields_ = std::move(fields);
  checked_ = std::move(checked);
  return {};
}

void ChatSettings::Apply(GenerationRequest* request) const {
  request->sampling = checked_.sampling;
  request->stop = checked_.stop;
  request->max_tokens = checked_.max_tokens;
  // Not "given": the model's own defaults come before these.
  SamplingFields& s = request->sampling;
  if (!s.given.temperature) s.temperature = kTemperatureDefault;
  if (!s.given.top_p) s.top_p = kTopPDefault;
}

Json ChatSettings::AsJson() const {
  Json out = Json::object();
  for (const std::string& name : ChatSettingNames()) {
    if (const auto it = fields_.find(name); it != fields_.end()) out[name] = *it;
  }
  if (!system_.empty()) out["system"] = system_;
  return out;
}

std::string ChatSettings::AsText() const {
  const Json set = AsJson();
  std::string out;
  for (const std::string& name : ChatSettingNames()) {
    const auto it = set.find(name);
    // A stop string of one line break is seen only as JSON.
    const bool plain = it != set.end() && it->is_string() && name != "stop";
    const std::string value = it == set.end() ? "default" : plain ? it->get<std::string>() : DumpJson(*it);
    out += fmt::format("  {:<18} {}\n", name, value);
  }
  return out;
}

}  // namespace headrace
