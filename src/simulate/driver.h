// Drives an engine through a list of requests on virtual time and writes down what became of each. Requests arrive
// while a step runs, as they do in a server: the executor's passing of time is where they are submitted. One thread.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "simulate/faults.h"
#include "simulate/results.h"
#include "trace/recorded_request.h"

namespace headrace {

// Virtual time begins here: 0 stands for "not yet" in the engine's stamps.
constexpr TimeNs kVirtualStart = kNsPerSecond;

class TrafficDriver {
 public:
  // What the engine is handed for requests[index], which arrives now.
  using Maker = std::function<std::unique_ptr<EngineRequest>(size_t index, TimeNs now)>;

  // Borrows all; `requests` in order of arrival. The engine may be made afterwards, with an executor that calls Pass.
  TrafficDriver(std::span<const RecordedRequest> requests, VirtualClock& clock, Maker maker);
  // Before Run. Faults may be null.
  void Attach(Engine& engine, Faults* faults);

  // Lets time go by, in which requests arrive.
  void Pass(TimeNs time);
  // Until every request has ended, or the engine sleeps or idles over work: then some are lost.
  void Run();

  const std::vector<RequestResult>& results() const { return results_; }
  // Between two tokens of an answer, all answers together.
  const std::vector<double>& gaps_ms() const { return gaps_ms_; }
  // After Run: requests without an end, which is a fault of the engine.
  // Without an end, after Run: a fault of the engine.
  size_t lost() const { return std::max(open_.size(), static_cast<size_t>(engine_->inside())); }
  // Of every event and its time: equal runs have equal ones.
  uint64_t events_hash() const { return events_hash_; }
  // Mean share of the KV pool that was in use while a request waited; 0 when none ever did.
  double UsageWhileWaiting() const { return waited_ns_ > 0 ? used_block_ns_ / waited_ns_ : 0; }
  // The tokens of each answer, for who asked for them before Run.
  void KeepAnswers() { keep_answers_ = true; }
  const std::vector<std::vector<int32_t>>& answers() const { return answers_; }

 private:
  struct Open {
    std::shared_ptr<EngineStream> stream;
    size_t index = 0;
    TimeNs last_token = 0;
    bool done = false;
  };
  TimeNs ArrivalOf(size_t index) const { return kVirtualStart + requests_[index].arrival_us * kNsPerUs; }
  void ArriveUntil(TimeNs end);
  void Arrive(size_t index);
  void CancelBy(Faults& faults);
  void Cancel(Open& open);
  void Collect(bool all = false);
  void CollectFrom(Open& open, TimeNs now);
  void End(Open& open, const TokenEvent& event, TimeNs now);
  void Note(uint64_t who, uint64_t what);

  const std::span<const RecordedRequest> requests_;
  VirtualClock& clock_;
  const Maker maker_;
  Engine* engine_ = nullptr;
  Faults* faults_ = nullptr;
  size_t next_ = 0;  // to arrive
  std::vector<Open> open_;
  bool any_done_ = false;
  double waited_ns_ = 0, used_block_ns_ = 0;  // the latter as a share of the pool
  int idle_steps_ = 0;                        // in a row
  std::vector<RequestResult> results_;
  std::vector<double> gaps_ms_;
  bool keep_answers_ = false;
  std::vector<std::vector<int32_t>> answers_;
  uint64_t events_hash_ = 0;
};

}  // namespace headrace
