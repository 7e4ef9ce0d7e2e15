// A moment by which something must have happened, moved often and reached rarely: moving it is a store, not a timer.
// Loop thread only. Destroying it cancels it.
#pragma once

#include <functional>
#include <utility>

#include "net/event_loop.h"

namespace headrace {

class Deadline {
 public:
  Deadline(EventLoop& loop, std::function<void()> on_expired) : loop_(loop), on_expired_(std::move(on_expired)) {}
  ~Deadline() { loop_.Cancel(timer_); }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  void Set(TimeNs delay) {
    const TimeNs now = loop_.Now();
    due_ = delay >= kNever - now ? kNever : now + delay;
    if (timer_.number != 0 && timer_.due <= due_) return;  // it will wake early and go on waiting
    loop_.Cancel(timer_);
    timer_ = {};
    if (due_ != kNever) Wait(due_ - now);
  }
  void Clear() { due_ = kNever; }

 private:
  void Wait(TimeNs delay) {
    timer_ = loop_.After(delay, [this] { Woke(); });
  }
  void Woke() {
    timer_ = {};
    if (due_ == kNever) return;
    const TimeNs now = loop_.Now();
    if (now < due_) return Wait(due_ - now);
    due_ = kNever;
    on_expired_();  // may destroy this
  }

  EventLoop& loop_;
  const std::function<void()> on_expired_;
  EventLoop::TimerId timer_;
  TimeNs due_ = kNever;
};

}  // namespace headrace
