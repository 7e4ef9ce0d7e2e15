#include "catalog/model_name.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/edit_distance.h"
#include "base/log.h"

namespace headrace {
namespace {

bool IsLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

std::unexpected<Error> BadName(std::string_view name, const std::string& why) {
  return Fail(ErrorCode::kInvalidArgument,
              "'" + EscapeForLog(name, 60) + "' is no model name: " + why + "; for a file elsewhere give its path",
              "model");
}

std::string Plain(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (IsLetterOrDigit(c)) out += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  return out;
}

bool IsPartSuffix(std::string_view s) {  // "-00001-of-00003"
  if (s.size() != 15 || s[0] != '-' || s.substr(6, 4) != "-of-") return false;
  const auto digits = [](std::string_view d) {
    return std::ranges::all_of(d, [](char c) { return c >= '0' && c <= '9'; });
  };
  return digits(s.substr(1, 5)) && digits(s.substr(10));
}

}  // namespace

Status CheckModelName(std::string_view name) {
  if (name.empty()) return BadName(name, "it is empty");
  if (name.size() > kModelNameBytesMax)
    return BadName(name, "it has " + std::to_string(name.size()) + " bytes, at most " +
                             std::to_string(kModelNameBytesMax) + " are allowed");
  if (!IsLetterOrDigit(name.front())) return BadName(name, "it must begin with a letter or digit");
  const auto allowed = [](char c) { return IsLetterOrDigit(c) || c == '.' || c == '_' || c == '-' || c == '+'; };
  if (!std::ranges::all_of(name, allowed)) return BadName(name, "only letters, digits and . _ - + may stand in one");
  if (name.find("..") != std::string_view::npos) return BadName(name, "'..' may not stand in one");
  if (name.back() == '.') return BadName(name, "it may not end in '.'");
  return {};
}

std::string_view ModelNameOfFile(std::string_view file_name) {
  for (const std::string_view ending : {".gguf", ".safetensors"}) {
    if (!file_name.ends_with(ending) || file_name.size() == ending.size()) continue;
    file_name.remove_suffix(ending.size());
    if (file_name.size() > 15 && IsPartSuffix(file_name.substr(file_name.size() - 15))) file_name.remove_suffix(15);
    break;
  }
  return file_name;
}

std::vector<std::string> NearModelNames(std::string_view wanted, const std::vector<std::string>& names) {
  const std::string plain = Plain(wanted.substr(0, kModelNameBytesMax));
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& name : names) {
    const std::string other = Plain(name);
    size_t distance = EditDistance(plain, other);
    const bool inside =
        plain.size() >= 3 && (other.find(plain) != std::string::npos || plain.find(other) != std::string::npos);
    // A third of the letters wrong is still a guess; more is another name.
    if (!inside && distance > std::max<size_t>(1, other.size() / 3)) continue;
    if (inside) distance = std::min<size_t>(distance, 2);
    found.emplace_back(distance, name);
  }
  std::ranges::sort(found);
  std::vector<std::string> out;
  for (auto& [distance, name] : found)
    if (out.size() < 3) out.push_back(std::move(name));
  return out;
}

}  // namespace headrace
