// The facts of a model as lines for a person.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "catalog/progress.h"
#include "model_facts.h"

namespace headrace {
namespace {

std::string PlanAsText(const Json& plan) {
  const auto bytes = [&](const char* key) { return FormatBytes(plan.at(key).get<uint64_t>()); };
  return fmt::format("weights {}; KV {} a token, {} for a full context; {} free now, room for {} tokens",
                     bytes("weights_bytes"), bytes("kv_bytes_per_token"), bytes("kv_bytes_full_context"),
                     bytes("memory_available_bytes"), plan.at("kv_tokens_that_fit").get<uint64_t>());
}

std::string ValueAsText(const std::string& key, const Json& value) {
  if (key == "memory_plan") return PlanAsText(value);
  if (key == "bytes") return FormatBytes(value.get<uint64_t>());
  if (key == "parameters") return fmt::format("{:.1f} M", static_cast<double>(value.get<int64_t>()) / 1e6);
  if (value.is_string()) return EscapeForLog(value.get_ref<const std::string&>(), 300);
  if (!value.is_object()) return DumpJson(value);
  std::string out;
  const bool counts = key == "tensor_types";  // "122 Q4_1", but "top_k 40"
  for (const auto& [name, item] : value.items()) {
    out += (out.empty() ? "" : ", ") + (counts ? DumpJson(item) + " " + name : name + " " + DumpJson(item));
  }
  return out;
}

}  // namespace

std::string FactsAsText(const Json& facts) {
  std::string out;
  for (const auto& [key, value] : facts.items()) {
    std::string label = key;
    std::ranges::replace(label, '_', ' ');
    out += fmt::format("{:<15} {}\n", label, ValueAsText(key, value));
  }
  return out;
}

}  // namespace headrace
