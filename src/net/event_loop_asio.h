// The Asio side of an EventLoop. Included by event_loop.cc and stream.cc only: these headers cost 20 s of compile time.
// Thread safety: `io` as Asio documents it; rung_bells is a lock-free stack; the rest belongs to the loop thread.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <vector>

#include "net/event_loop.h"

namespace headrace {

// What a ring leaves behind. `self` keeps the state alive from the ring until the loop has looked at it, so that a bell
// may be destroyed in between.
struct BellState {
  std::atomic<bool> rung{false};
  bool dropped = false;  // loop thread
  BellState* next = nullptr;
  std::shared_ptr<BellState> self;
  std::function<void()> on_ring;
};

struct EventLoop::Asio {
  Asio();
  ~Asio();

  void PushRung(BellState* bell);
  void WaitForBells();
  void AnswerBells();
  void WaitForSignal(boost::asio::signal_set& set, std::function<void(int)> on_signal);

  boost::asio::io_context io{1};
  boost::asio::steady_timer timer{io};
  int bell_fd = -1;
  boost::asio::posix::stream_descriptor bell_descriptor{io};
  std::atomic<BellState*> rung_bells{nullptr};
  std::vector<std::unique_ptr<boost::asio::signal_set>> signals;
};

}  // namespace headrace
