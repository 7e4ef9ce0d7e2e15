#include "config/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/edit_distance.h"

namespace headrace {
namespace {

std::string Plain(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  while (out.starts_with('-')) out.erase(0, 1);
  return out;
}

bool SharesWord(std::string_view a, std::string_view b) {
  for (size_t at = 0; at < a.size();) {
    const size_t end = std::min(a.find('-', at), a.size());
    const std::string word = "-" + std::string(a.substr(at, end - at)) + "-";
    // Short words such as "max" say little.
    if (word.size() >= 6 && ("-" + std::string(b) + "-").contains(word)) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

std::vector<std::string> NearOptionNames(std::string_view wanted, const std::vector<std::string>& names) {
  const std::string plain = Plain(wanted.substr(0, 100));
  std::vector<std::pair<size_t, std::string>> found;
  for (const std::string& name : names) {
    const std::string other = Plain(name);
    const size_t edits = EditDistance(plain, other);
    if (edits <= std::max<size_t>(1, other.size() / 3))
      found.emplace_back(edits, name);
    else if (SharesWord(plain, other))
      found.emplace_back(100 + edits, name);
  }
  std::ranges::sort(found);
  std::vector<std::string> out;
  for (auto& [distance, name] : found)
    if (out.size() < 3) out.push_back(std::move(name));
  return out;
}

std::string NearSentence(std::string_view wanted, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : NearOptionNames(wanted, names)) out += (out.empty() ? " Near: " : ", ") + name;
  return out.empty() ? out : out + ".";
}

}  // namespace headrace
