#include "net/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "net/event_loop_asio.h"

namespace headrace {
namespace {

class LoopDoorbell final : public Doorbell {
 public:
  LoopDoorbell(EventLoop::Asio& asio, std::function<void()> on_ring) : asio_(asio) {
    state_->on_ring = std::move(on_ring);
  }
  ~LoopDoorbell() override {
    state_->dropped = true;
    state_->on_ring = nullptr;
  }
  void Ring() override {
    if (state_->rung.exchange(true, std::memory_order_acq_rel)) return;
    state_->self = state_;
    asio_.PushRung(state_.get());
  }

 private:
  EventLoop::Asio& asio_;
  const std::shared_ptr<BellState> state_ = std::make_shared<BellState>();
};

}  // namespace

EventLoop::Asio::Asio() : bell_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK_GE(bell_fd, 0);  // no descriptor left at start-up: nothing can be served
  bell_descriptor.assign(bell_fd);
  WaitForBells();
}

EventLoop::Asio::~Asio() {
  // A bell that was rung and never looked at holds itself: let go of it.
  for (BellState* bell = rung_bells.exchange(nullptr); bell != nullptr;) {
    BellState* const next = bell->next;
    const std::shared_ptr<BellState> last = std::move(bell->self);
    bell = next;
  }
}

void EventLoop::Asio::PushRung(BellState* bell) {
  BellState* head = rung_bells.load(std::memory_order_relaxed);
  do {
    bell->next = head;
  } while (!rung_bells.compare_exchange_weak(head, bell, std::memory_order_acq_rel));
  if (head != nullptr) return;  // whoever pushed the first has written already
  const uint64_t one = 1;
  // The only failure left is an overflowing counter, and then the loop is awake anyway.
  [[maybe_unused]] const ssize_t written = write(bell_fd, &one, sizeof(one));
}

void EventLoop::Asio::WaitForBells() {
  bell_descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](boost::system::error_code ec) {
    if (ec) return;
    AnswerBells();
    WaitForBells();
  });
}

void EventLoop::Asio::AnswerBells() {
  uint64_t count = 0;
  // Emptied before the stack is taken: a ring after that writes again.
  [[maybe_unused]] const ssize_t got = read(bell_fd, &count, sizeof(count));
  for (BellState* bell = rung_bells.exchange(nullptr, std::memory_order_acq_rel); bell != nullptr;) {
    BellState* const next = bell->next;
    const std::shared_ptr<BellState> keep = std::move(bell->self);
    bell->rung.store(false, std::memory_order_release);  // from here on it can be rung, and pushed, again
    if (!keep->dropped) {
      const std::function<void()> on_ring = keep->on_ring;  // the bell may drop itself while it rings
      on_ring();
    }
    bell = next;
  }
}

void EventLoop::Asio::WaitForSignal(boost::asio::signal_set& set, std::function<void(int)> on_signal) {
  set.async_wait([this, &set, on_signal = std::move(on_signal)](boost::system::error_code ec, int number) {
    if (ec) return;
    on_signal(number);
    WaitForSignal(set, on_signal);
  });
}

EventLoop::EventLoop() : asio_(std::make_unique<Asio>()) {}

EventLoop::~EventLoop() = default;

void EventLoop::Run() {
  thread_.store(std::this_thread::get_id());
  const auto work = boost::asio::make_work_guard(asio_->io);
  while (!asio_->io.stopped()) {
    try {
      asio_->io.run();
    } catch (const std::exception& e) {
      LOG_ERROR("event loop: a task threw: {}", EscapeForLog(e.what()));
    }
  }
  thread_.store(std::thread::id());
}

void EventLoop::Stop() { asio_->io.stop(); }

void EventLoop::Post(Task task) { boost::asio::post(asio_->io, std::move(task)); }

bool EventLoop::InLoopThread() const {
  const std::thread::id running = thread_.load();
  return running == std::thread::id() || running == std::this_thread::get_id();
}

EventLoop::TimerId EventLoop::After(TimeNs delay, Task task) {
  const TimeNs now = Now();
  const TimeNs due = delay >= kNever - now ? kNever : now + std::max<TimeNs>(delay, 0);
  const TimerId id{due, ++timers_made_};
  timers_.emplace(id, std::move(task));
  if (due < armed_for_) ArmTimer();
  return id;
}

// The alarm stays set: waking once for nothing is cheaper than a system call for every cancelled timer.
void EventLoop::Cancel(TimerId id) { timers_.erase(id); }

void EventLoop::ArmTimer() {
  armed_for_ = timers_.empty() ? kNever : timers_.begin()->first.due;
  if (armed_for_ == kNever) return;
  asio_->timer.expires_at(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(armed_for_)));
  asio_->timer.async_wait([this](boost::system::error_code ec) {
    if (!ec) RunDueTimers();
  });
}

void EventLoop::RunDueTimers() {
  armed_for_ = kNever;
  struct Rearm {
    EventLoop& loop;
    ~Rearm() { loop.ArmTimer(); }  // also when a task throws
  } rearm{*this};
  // A task may add timers; those due later than this instant wait for the next round, so that I/O gets its turn.
  const TimeNs now = Now();
  const uint64_t newest = timers_made_;
  while (!timers_.empty()) {
    const auto first = timers_.begin();
    if (first->first.due > now || first->first.number > newest) break;
    Task task = std::move(first->second);
    timers_.erase(first);
    task();
  }
}

std::unique_ptr<Doorbell> EventLoop::MakeDoorbell(std::function<void()> on_ring) {
  return std::make_unique<LoopDoorbell>(*asio_, std::move(on_ring));
}

void EventLoop::OnSignal(const std::vector<int>& signals, std::function<void(int)> on_signal) {
  auto set = std::make_unique<boost::asio::signal_set>(asio_->io);
  for (const int number : signals) {
    boost::system::error_code ec;
    set->add(number, ec);
    CHECK(!ec);
  }
  asio_->WaitForSignal(*set, std::move(on_signal));
  asio_->signals.push_back(std::move(set));
}

}  // namespace headrace
