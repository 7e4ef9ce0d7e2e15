#include "chat/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/file.h"

namespace headrace {
namespace {

// Parents first; what exists keeps its mode.
void MakeFolders(const std::filesystem::path& folder) {
  if (folder.empty() || folder == folder.parent_path()) return;
  struct stat info{};
  if (stat(folder.c_str(), &info) == 0) return;
  MakeFolders(folder.parent_path());
  mkdir(folder.c_str(), 0700);
}

std::vector<std::string> Lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0 && end <= kHistoryLineBytesMax) lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::vector<std::string> HistoryFile::Load() {
  if (path_.empty()) return {};
  const auto text = ReadWholeFile(path_, kHistoryFileBytesMax);
  if (!text) {
    if (text.error().code == ErrorCode::kTooLarge) (void)WriteFileAtomically(path_, "");
    return {};
  }
  std::vector<std::string> lines = Lines(*text);
  if (lines.size() <= kHistoryLinesMax) return lines;
  lines.erase(lines.begin(), lines.end() - kHistoryLinesMax);
  std::string kept;
  for (const std::string& line : lines) kept += line + '\n';
  (void)WriteFileAtomically(path_, kept);
  return lines;
}

void HistoryFile::Append(std::string_view line) {
  if (path_.empty() || line.empty() || line.size() > kHistoryLineBytesMax || line.contains('\n')) return;
  bytes_ += line.size() + 1;
  if (bytes_ > kHistoryFileBytesMax / 2) return;
  MakeFolders(std::filesystem::path(path_).parent_path());
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  // One write, so that two chats do not mix their lines.
  const std::string whole = std::string(line) + '\n';
  if (fchmod(fd, 0600) == 0) (void)!write(fd, whole.data(), whole.size());
  close(fd);
}

std::string DefaultHistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/headrace/history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  return std::string(home) + "/.local/state/headrace/history";
}

}  // namespace headrace
