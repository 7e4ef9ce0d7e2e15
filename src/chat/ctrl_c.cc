#include "chat/ctrl_c.h"

#include <atomic>

namespace headrace {
namespace {

// A handler reaches nothing but globals; any thread may run it.
std::atomic<bool> pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void OnSignal(int) { pressed.store(true, std::memory_order_relaxed); }

}  // namespace

CtrlC::CtrlC() {
  struct sigaction watch{};
  watch.sa_handler = OnSignal;
  sigemptyset(&watch.sa_mask);
  sigaction(SIGINT, &watch, &old_);
}

CtrlC::~CtrlC() { sigaction(SIGINT, &old_, nullptr); }

bool CtrlC::Pressed() { return pressed.load(std::memory_order_relaxed); }
void CtrlC::Forget() { pressed.store(false, std::memory_order_relaxed); }

}  // namespace headrace
