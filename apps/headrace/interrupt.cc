#include "interrupt.h"

namespace headrace {
namespace {

volatile sig_atomic_t interrupted = 0;

void OnSignal(int) { interrupted = 1; }

}  // namespace

InterruptWatch::InterruptWatch() {
  struct sigaction watch{};
  watch.sa_handler = OnSignal;
  sigemptyset(&watch.sa_mask);
  sigaction(SIGINT, &watch, &old_int_);
  sigaction(SIGTERM, &watch, &old_term_);
}

InterruptWatch::~InterruptWatch() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

bool InterruptWatch::Interrupted() { return interrupted != 0; }

}  // namespace headrace
