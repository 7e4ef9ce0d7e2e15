// Ctrl-C and SIGTERM as a question, while a command fetches something that must stay resumable.
#pragma once

#include <csignal>

namespace headrace {

// While it lives the two signals no longer kill the process. One at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  static bool Interrupted();

 private:
  struct sigaction old_int_{};
  struct sigaction old_term_{};
};

}  // namespace headrace
