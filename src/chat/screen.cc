#include "chat/screen.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace headrace {
namespace {

// 0, or the system's error.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return 0;
}

}  // namespace

std::string SafeForTerminal(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const bool c0 = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    // U+0080 to U+009F are C2 80 to C2 9F; some terminals obey them like ESC and a letter.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (c0)
      out += fmt::format("\\x{:02x}", byte);
    else if (c1)
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[++i]));
    else
      out += text[i];
  }
  return out;
}

Screen::Screen(int out, int notes)
    : out_(out), notes_(notes), out_is_terminal_(isatty(out) != 0), notes_are_terminal_(isatty(notes) != 0) {}

void Screen::Write(std::string_view text) {
  if (text.empty() || !status_) return;
  line_open_ = text.back() != '\n';
  const int failed = out_is_terminal_ ? WriteAll(out_, SafeForTerminal(text)) : WriteAll(out_, text);
  if (failed != 0) status_ = Fail(ErrorCode::kIo, fmt::format("cannot write the answer: {}", std::strerror(failed)));
}

void Screen::EndLine() {
  if (line_open_) Write("\n");
}

void Screen::Note(std::string_view text) {
  std::string line(text);
  if (!line.ends_with('\n')) line += '\n';
  if (notes_are_terminal_) line = SafeForTerminal(line);
  // Nowhere is left to say that notes cannot be written.
  (void)WriteAll(notes_, line);
}

}  // namespace headrace
