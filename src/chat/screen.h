// Where the program writes: answers to stdout, everything else to stderr. What goes to a terminal is made harmless.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace headrace {

// Control characters (C0 but line break and tab, DEL, C1) as \x1b: a model's text may not move the cursor, set the
// title or ask the terminal anything. REQUIRES: UTF-8, whole characters.
std::string SafeForTerminal(std::string_view text);

// One thread.
class Screen {
 public:
  // File descriptors of answers and notes; borrowed.
  Screen(int out, int notes);

  // A piece of an answer, at once. A refusal of the system (disk full) is remembered, see status().
  void Write(std::string_view text);
  // Ends the answer's line unless it ended itself.
  void EndLine();
  // A line for the person, in full; line breaks inside stay.
  void Note(std::string_view text);
  const Status& status() const { return status_; }
  bool out_is_terminal() const { return out_is_terminal_; }
  bool notes_are_terminal() const { return notes_are_terminal_; }

 private:
  const int out_, notes_;
  const bool out_is_terminal_, notes_are_terminal_;
  bool line_open_ = false;
  Status status_;
};

}  // namespace headrace
