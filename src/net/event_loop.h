// One thread that waits for sockets, timers, posted tasks, doorbells and signals, and runs what became due.
//
// Threads: Post, Stop, InLoopThread and Doorbell::Ring may be called from any thread. Everything else belongs to the
// thread inside Run, or to any one thread while nobody is inside Run.
// Invariants: tasks run one at a time, in the order in which one thread posted them. No task runs after Stop returned
// on the loop thread. The loop outlives every server, call, doorbell and stream made on it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/doorbell.h"

namespace headrace {

class EventLoop {
 public:
  using Task = std::move_only_function<void()>;
  struct TimerId {
    TimeNs due = 0;
    uint64_t number = 0;  // 0: no timer
    auto operator<=>(const TimerId&) const = default;
  };

  EventLoop();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs until Stop, which may come first. An exception that leaves a task is logged, and the loop goes on.
  void Run();
  void Stop();
  void Post(Task task);

  // Runs `task` once, `delay` from now. Cancel of a timer that has run, or of no timer, does nothing.
  TimerId After(TimeNs delay, Task task);
  void Cancel(TimerId id);
  TimeNs Now() const { return clock_.Now(); }

  // A bell whose ring runs `on_ring` here. Ring allocates nothing and makes a system call only when no ring of any bell
  // of this loop is pending. Destroy the bell on the loop thread, or when the loop no longer runs.
  std::unique_ptr<Doorbell> MakeDoorbell(std::function<void()> on_ring);

  // From now on these signals no longer kill the process; `on_signal` runs here, once for each delivery.
  void OnSignal(const std::vector<int>& signals, std::function<void(int)> on_signal);

  // True also while nobody is inside Run.
  bool InLoopThread() const;

  // The library underneath, for the sources of this room only (event_loop_asio.h).
  struct Asio;
  Asio& asio() { return *asio_; }

 private:
  void RunDueTimers();
  void ArmTimer();

  SystemClock clock_;
  std::unique_ptr<Asio> asio_;
  std::map<TimerId, Task> timers_;  // ordered by due time
  uint64_t timers_made_ = 0;
  TimeNs armed_for_ = kNever;
  std::atomic<std::thread::id> thread_{};
};

}  // namespace headrace
