#include "catalog/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace headrace {
namespace {

// Four times a second is smooth to read and cheap.
constexpr TimeNs kShowEvery = 250 * kNsPerMs;

void WriteStderr(std::string_view text) {
  [[maybe_unused]] const ssize_t put = write(STDERR_FILENO, text.data(), text.size());
}

std::string FormatDuration(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds + 0.5, 0.0, 360'000.0));
  if (s < 100) return fmt::format("{} s", s);
  if (s < 6000) return fmt::format("{} min", (s + 30) / 60);
  return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit < 4) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string FormatProgress(std::string_view file, uint64_t done, uint64_t total, uint64_t done_at_start,
                           TimeNs elapsed) {
  std::string line = fmt::format("{}  {}", file, FormatBytes(done));
  if (total > 0) line += fmt::format(" of {}", FormatBytes(total));
  if (elapsed <= 0 || done <= done_at_start) return line;
  const double rate = static_cast<double>(done - done_at_start) / (static_cast<double>(elapsed) / kNsPerSecond);
  line += fmt::format("  {}/s", FormatBytes(static_cast<uint64_t>(rate)));
  if (total > done && rate >= 1)
    line += fmt::format("  {} left", FormatDuration(static_cast<double>(total - done) / rate));
  return line;
}

void StderrProgress::Say(std::string_view line) {
  EndFile();
  WriteStderr(std::string(line) + "\n");
}

void StderrProgress::Advance(std::string_view file, uint64_t done, uint64_t total, uint64_t done_at_start) {
  if (!is_terminal_) return;
  const TimeNs now = clock_.Now();
  if (!line_open_) started_ = now;
  if (line_open_ && now - shown_ < kShowEvery && done != total) return;
  line_open_ = true;
  shown_ = now;
  // "\033[K" clears what a longer line left behind.
  WriteStderr("\r" + FormatProgress(file, done, total, done_at_start, now - started_) + "\033[K");
}

void StderrProgress::EndFile() {
  if (line_open_) WriteStderr("\n");
  line_open_ = false;
}

}  // namespace headrace
