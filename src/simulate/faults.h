// What goes wrong in a simulated run, by seed: steps that pause, fail, or fail for one request; a clock that jumps
// ahead (a machine that slept); callers that leave in every state that a request can be in; readers that stop reading.
// A wrapper around the executor sees which state each request is in. The same seed gives the same faults. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "executor/executor.h"

namespace headrace {

// Shares: of steps, or of requests.
struct FaultRates {
  double pause = 0;        // of steps, that take up to kPauseMost longer
  double clock_jump = 0;   // of steps, after which the clock stands up to kJumpMost later
  double step_error = 0;   // of steps, that fail for all in them
  double token_error = 0;  // of drawn tokens
  double cancel = 0;       // of requests, in a state that is drawn; not if they never reach it
  double slow_reader = 0;  // of requests, read only every hundredth step

  bool operator==(const FaultRates&) const = default;
};
constexpr TimeNs kPauseMost = 3 * kNsPerSecond;
constexpr TimeNs kJumpMost = 90 * kNsPerSecond;
// About what a bad day looks like.
constexpr FaultRates kBadDay = {.pause = 0.002,
                                .clock_jump = 0.0002,
                                .step_error = 0.0005,
                                .token_error = 0.0001,
                                .cancel = 0.3,
                                .slow_reader = 0.05};

// kPreempted: it decoded, and had no row in the last step.
enum class RequestState : uint8_t { kArrived, kWaiting, kInPrompt, kDecoding, kPreempted, kEnded };
constexpr int kRequestStates = 6;

class Faults {
 public:
  Faults(uint64_t seed, const FaultRates& rates) : seed_(seed), rates_(rates), random_(seed) {}

  // Whether the caller of this request leaves now. `id`: its stream's.
  bool CancelsNow(size_t index, uint64_t id);
  // Whether it cancels an answer that it has read to the end.
  bool CancelsEnded(size_t index);
  // Whether its reader does not read now.
  bool HoldsBack(size_t index) const;
  int cancelled_in(RequestState state) const { return cancelled_[static_cast<size_t>(state)]; }
  uint64_t step_errors() const { return step_errors_; }

 private:
  friend class FaultyExecutor;
  struct Seen {
    uint64_t step = 0;  // the last one it had rows in
    bool in_prompt = false, tokens = false;
  };
  RequestState StateOf(uint64_t id) const;
  // In which state the caller leaves; nothing: it stays.
  std::optional<RequestState> Leaves(size_t index) const;

  const uint64_t seed_;
  const FaultRates rates_;
  Random random_;
  uint64_t step_ = 0;
  std::unordered_map<uint64_t, Seen> seen_;       // by stream id
  std::unordered_map<uint64_t, uint64_t> asked_;  // by stream id: the step at which CancelsNow first heard of it
  int cancelled_[kRequestStates] = {};
  uint64_t step_errors_ = 0;
};

class FaultyExecutor final : public Executor {
 public:
  // `pass` lets virtual time go by. Borrows all.
  FaultyExecutor(Executor& inner, Faults& faults, std::function<void(TimeNs)> pass)
      : inner_(inner), faults_(faults), pass_(std::move(pass)) {}

  const ExecutorDescription& Describe() const override { return inner_.Describe(); }
  Status Submit(const StepInput& input) override;
  Result<const StepOutput*> Wait() override;
  void ReadBlock(int32_t block, std::span<std::byte> out) const override { inner_.ReadBlock(block, out); }
  void WriteBlock(int32_t block, std::span<const std::byte> bytes) override { inner_.WriteBlock(block, bytes); }

 private:
  void See(const StepInput& input);
  bool Happens(double rate) { return rate > 0 && faults_.random_.Uniform() < rate; }

  Executor& inner_;
  Faults& faults_;
  const std::function<void(TimeNs)> pass_;
  const StepInput* input_ = nullptr;
  StepOutput output_;
};

}  // namespace headrace
