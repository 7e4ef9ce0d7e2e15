#include "chat/chat_settings.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "chat/input_reader.h"
#include "config/near_names.h"

namespace headrace {
namespace {

constexpr int64_t kTokensMax = 1 << 30;  // beyond every context
const std::vector<std::string>& SettingNames() {
  static const std::vector<std::string> names = {"temperature", "top_p", "top_k", "seed", "max_tokens", "system"};
  return names;
}

template <typename T>
Status SetNumber(std::string_view name, std::string_view value, T min, T max, std::optional<T>* out) {
  if (value == "default") {
    out->reset();
    return {};
  }
  T number{};
  const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  // Written so that NaN fails.
  if (code == std::errc{} && end == value.data() + value.size() && number >= min && number <= max) {
    *out = number;
    return {};
  }
  const char* kind = std::is_integral_v<T> ? "a whole number" : "a number";
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{} is {} from {} to {}, or \"default\"", name, kind, min, max),
              std::string(name));
}

}  // namespace

Result<ChatSettings> ChatSettings::From(const RunOptions& options) {
  ChatSettings settings;
  // Through the same checks as what is typed later.
  const auto set = [&](const char* name, const auto& value) -> Status { return settings.Set(name, fmt::format("{}", value)); };
  if (options.temperature) HR_RETURN_IF_ERROR(set("temperature", *options.temperature));
  if (options.top_p) HR_RETURN_IF_ERROR(set("top_p", *options.top_p));
  if (options.seed) HR_RETURN_IF_ERROR(set("seed", *options.seed));
  if (options.max_tokens != 0) HR_RETURN_IF_ERROR(set("max_tokens", options.max_tokens));
  if (std::string why = WhyNotText(options.system); !why.empty()) return Fail(ErrorCode::kInvalidArgument, std::move(why), "system");
  settings.system = options.system;
  return settings;
}

Status ChatSettings::Set(std::string_view name, std::string_view value) {
  if (name == "temperature") return SetNumber<double>(name, value, 0, 2, &temperature);
  if (name == "top_p") return SetNumber<double>(name, value, 0, 1, &top_p);
  if (name == "top_k") return SetNumber<int64_t>(name, value, 0, INT32_MAX, &top_k);
  if (name == "seed") return SetNumber<uint64_t>(name, value, 0, UINT64_MAX, &seed);
  if (name == "max_tokens") return SetNumber<int64_t>(name, value, 1, kTokensMax, &max_tokens);
  if (name == "system") {
    system = value == "default" ? "" : value;
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("there is no setting '{}'.{} There are {}.", name.substr(0, 60), NearSentence(name, SettingNames()),
                          fmt::join(SettingNames(), ", ")),
              std::string(name.substr(0, 60)));
}

void ChatSettings::Apply(GenerationRequest* request) const {
  SamplingFields& s = request->sampling;
  s.given.temperature = temperature.has_value();
  s.given.top_p = top_p.has_value();
  s.given.top_k = top_k.has_value();
  // Not "given": the model's own defaults come before these.
  s.temperature = temperature.value_or(kTemperatureDefault);
  s.top_p = top_p.value_or(kTopPDefault);
  s.top_k = top_k.value_or(s.top_k);
  s.seed = seed;
  request->max_tokens = max_tokens;
}

Json ChatSettings::AsJson() const {
  Json out = Json::object();
  if (temperature) out["temperature"] = *temperature;
  if (top_p) out["top_p"] = *top_p;
  if (top_k) out["top_k"] = *top_k;
  if (seed) out["seed"] = *seed;
  if (max_tokens) out["max_tokens"] = *max_tokens;
  if (!system.empty()) out["system"] = system;
  return out;
}

std::string ChatSettings::AsText() const {
  const Json set = AsJson();
  std::string out;
  for (const std::string& name : SettingNames()) {
    const auto it = set.find(name);
    const std::string value = it == set.end() ? "default" : it->is_string() ? it->get<std::string>() : DumpJson(*it);
    out += fmt::format("  {:<12} {}\n", name, value);
  }
  return out;
}

}  // namespace headrace
