#include "config/near_names.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace headrace {
namespace {

std::string Plain(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  while (out.starts_with('-')) out.erase(0, 1);
  return out;
}

// Optimal string alignment: Levenshtein's edits (1966) and two neighbours exchanged as one edit, the slip of a quick
// hand.
size_t Edits(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
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
    const size_t edits = Edits(plain, other);
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
