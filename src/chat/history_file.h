// What was typed, one line each, for the next time. Readable by its owner only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace headrace {

constexpr size_t kHistoryLinesMax = 1'000;
constexpr size_t kHistoryLineBytesMax = 4'096;  // longer lines are not kept
// A chat may write beyond kHistoryLinesMax; the next one cuts. A larger file is started anew.
constexpr size_t kHistoryFileBytesMax = 16u << 20;
static_assert(kHistoryFileBytesMax > 2 * kHistoryLinesMax * kHistoryLineBytesMax);

// One thread. Errors cost the history, never the chat.
class HistoryFile {
 public:
  // `path` "": nothing is kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}
  // The newest kHistoryLinesMax lines, oldest first; cuts the file to them.
  std::vector<std::string> Load();
  // Appends at once, so that a killed chat loses nothing; makes folders (0700) and the file (0600).
  void Append(std::string_view line);

 private:
  std::string path_;
  size_t bytes_ = 0;
};

// $XDG_STATE_HOME/headrace/history, else ~/.local/state/headrace/history; "" without a home.
std::string DefaultHistoryPath();

}  // namespace headrace
