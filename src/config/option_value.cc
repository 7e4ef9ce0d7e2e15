#include "config/option_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/log.h"

namespace headrace {
namespace {

std::unexpected<Error> Bad(std::string_view text, std::string_view wanted) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("'{}' must be {}", EscapeForLog(text, 60), wanted));
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

// A number and the letters behind it. `ok` is false when there is no finite number.
struct Quantity {
  bool ok = false;
  double value = 0;
  std::string unit;  // lower case, without blanks in front
};

Quantity Split(std::string_view text) {
  Quantity out;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out.value);
  out.ok = !text.empty() && code == std::errc() && std::isfinite(out.value);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  out.unit = Lower(unit);
  return out;
}

Status CheckRange(const OptionSpec& spec, double value, std::string_view text, std::string_view what) {
  if (value >= spec.min && value <= spec.max) return {};
  if (spec.kind != OptionKind::kInteger && spec.kind != OptionKind::kTokens)
    return Bad(text, fmt::format("{} from {} to {}", what, spec.min, spec.max));
  // 2^63 in the table stands for the largest int64, which no double is.
  const int64_t max = spec.max >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(spec.max);
  return Bad(text, fmt::format("{} from {} to {}", what, static_cast<int64_t>(spec.min), max));
}

Status CheckName(std::string_view text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (text.empty() || std::ranges::any_of(text, is_control))
    return Bad(text, "a name: not empty, without control characters");
  return {};
}

Status CheckOne(const OptionSpec& spec, std::string_view text) {
  switch (spec.kind) {
    case OptionKind::kSwitch:
      HR_RETURN_IF_ERROR(ParseSwitch(text));
      return {};
    case OptionKind::kBytes:
      HR_RETURN_IF_ERROR(ParseBytes(text));
      return {};
    case OptionKind::kInteger: {
      HR_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text));
      return CheckRange(spec, static_cast<double>(value), text, "a whole number");
    }
    case OptionKind::kTokens: {
      HR_ASSIGN_OR_RETURN(const int64_t value, ParseTokens(text));
      return CheckRange(spec, static_cast<double>(value), text, "a whole number");
    }
    case OptionKind::kNumber: {
      HR_ASSIGN_OR_RETURN(const double value, ParseNumber(text));
      return CheckRange(spec, value, text, "a number");
    }
    case OptionKind::kSeconds: {
      HR_ASSIGN_OR_RETURN(const double value, ParseSeconds(text));
      return CheckRange(spec, value, text, "seconds");
    }
    case OptionKind::kChoice: {
      const auto choices = Words(spec.choices);
      if (text.empty() || std::ranges::find(choices, ChoiceOf(spec, text)) != choices.end()) return {};
      return Bad(text, fmt::format("one of {}", fmt::join(choices, ", ")));
    }
    case OptionKind::kNames:
      HR_RETURN_IF_ERROR(CheckName(text));
      break;
    case OptionKind::kText:
    case OptionKind::kSecret:
    case OptionKind::kTexts:
    case OptionKind::kFile:
    case OptionKind::kFolder:
      break;
  }
  const std::string_view shown = spec.kind == OptionKind::kSecret ? "..." : text;
  if (text.size() > kOptionTextBytesMax) return Bad(shown, fmt::format("at most {} bytes long", kOptionTextBytesMax));
  if (text.contains('\0')) return Bad(shown, "a text without NUL bytes");
  return {};
}

}  // namespace

Result<bool> ParseSwitch(std::string_view text) {
  const std::string word = Lower(text);
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return Bad(text, "true or false");
}

Result<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size()) return Bad(text, "a whole number");
  return value;
}

Result<int64_t> ParseTokens(std::string_view text) {
  if (text == "auto" || text == "-1") return 0;
  const Quantity q = Split(text);
  if (q.unit.empty()) return ParseInteger(text);
  // As vLLM reads them: a small letter counts in thousands, a large one in 1024s.
  const double scale = text.ends_with('k') ? 1e3 : text.ends_with('K') ? 0x1p10 : text.ends_with('m') ? 1e6 : 0x1p20;
  const double value = q.value * scale;
  if (!q.ok || (q.unit != "k" && q.unit != "m") || std::abs(value) > 0x1p53 || value != std::round(value))
    return Bad(text, "a whole number, such as 8192, 8K or auto");
  return static_cast<int64_t>(value);
}

Result<double> ParseNumber(std::string_view text) {
  const Quantity q = Split(text);
  if (!q.ok || !q.unit.empty()) return Bad(text, "a number");
  return q.value;
}

Result<double> ParseSeconds(std::string_view text) {
  const Quantity q = Split(text);
  const double scale = q.unit.empty() || q.unit == "s"    ? 1
                       : q.unit == "ms"                   ? 0.001
                       : q.unit == "m" || q.unit == "min" ? 60
                       : q.unit == "h"                    ? 3600
                                                          : 0;
  if (!q.ok || scale == 0 || q.value < 0) return Bad(text, "a time such as 30, 1.5s, 500ms, 5m or 1h");
  return q.value * scale;
}

Result<uint64_t> ParseBytes(std::string_view text) {
  const Quantity q = Split(text);
  double scale = q.unit.empty() || q.unit == "b" ? 1 : 0;
  const size_t power = q.unit.empty() ? std::string::npos : std::string_view("kmgt").find(q.unit[0]);
  if (power != std::string::npos) {
    const std::string_view rest = std::string_view(q.unit).substr(1);
    // "MB" is what disks mean, "MiB" and plain "M" what memory means.
    if (rest == "b") scale = std::pow(1000.0, static_cast<double>(power + 1));
    if (rest == "ib" || rest.empty()) scale = std::pow(1024.0, static_cast<double>(power + 1));
  }
  // 2^60: an exabyte, and still exact in a double.
  if (!q.ok || scale == 0 || q.value < 0 || q.value * scale > 0x1p60)
    return Bad(text, "a size such as 1073741824, 512MB or 2GiB");
  return static_cast<uint64_t>(q.value * scale);
}

std::string_view ChoiceOf(const OptionSpec& spec, std::string_view text) {
  for (const std::string_view pair : Words(spec.synonyms))
    if (pair.substr(0, pair.find('=')) == text) return pair.substr(pair.find('=') + 1);
  return text;
}

Status CheckOptionValue(const OptionSpec& spec, const std::vector<std::string>& texts, const std::string& who) {
  Status status;
  if (texts.size() > kOptionTextsMax)
    status = Fail(ErrorCode::kInvalidArgument, fmt::format("at most {} values are accepted", kOptionTextsMax));
  if (!IsList(spec.kind) && texts.size() != 1) status = Fail(ErrorCode::kInvalidArgument, "one value is expected");
  for (const std::string& text : texts)
    if (status) status = CheckOne(spec, text);
  if (status) return {};
  return Fail(ErrorCode::kInvalidArgument, who + ": " + status.error().message, std::string(spec.name));
}

}  // namespace headrace
