// Ctrl-C as a question instead of an end.
#pragma once

#include <signal.h>

namespace headrace {

// While it lives, SIGINT does not end the process. Main thread, one at a time.
class CtrlC {
 public:
  CtrlC();
  ~CtrlC();
  CtrlC(const CtrlC&) = delete;
  CtrlC& operator=(const CtrlC&) = delete;

  static bool Pressed();
  static void Forget();

 private:
  struct sigaction old_{};
};

}  // namespace headrace
