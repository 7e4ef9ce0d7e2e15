// One line from the person, with editing and history. The only place that knows libedit.
#pragma once

#include <memory>
#include <string>

namespace headrace {

// Main thread, made before other threads start: it sets the character locale.
// REQUIRES: stdin and stdout are a terminal.
class LineEditor {
 public:
  enum class End {
    kLine,
    kCtrlC,  // the line was dropped
    kEof,    // Ctrl-D on an empty line, or the terminal is gone
  };

  // History from and to `history_path`; "" for none.
  explicit LineEditor(std::string history_path);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // REQUIRES: a CtrlC lives.
  End Read(const char* prompt, std::string* line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace headrace
