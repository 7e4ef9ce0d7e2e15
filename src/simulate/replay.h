// One replica under recorded or drawn traffic, on virtual time: the production engine, scheduler, queue and cache over
// a machine that is known by its step costs. Deterministic: equal arguments, equal report.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "queueing/waiting_queue.h"
#include "simulate/faults.h"
#include "simulate/results.h"
#include "simulate/virtual_executor.h"
#include "trace/recorded_request.h"

namespace headrace {

struct ReplayOptions {
  VirtualMachine machine;
  int32_t shared_tokens_max = 0;  // EngineOptions
  int32_t waiting_max = 1024;
  bool prefix_cache = true;
  QueueOrder order = QueueOrder::kFair;
  double queue_timeout_s = 0;  // 0: none
  TimeNs itl_target = 0;       // EngineOptions
  TimeNs brown_out_wait = 0;   // EngineOptions; 0: nothing is given up
  int64_t answer_limit = 0;    // tokens that an answer may have, which ends by itself before; 0: as many as it has
  LatencyTarget target;
  uint64_t seed = 1;
  FaultRates faults;
  bool check = false;  // every invariant after every step, by CHECK
};

struct ReplayReport {
  ResultTable table;
  uint64_t steps = 0, preemptions = 0, evictions = 0;
  uint64_t prompt_tokens = 0, generated_tokens = 0;  // computed
  uint64_t recomputed_tokens = 0;                    // that preemptions had lost
  uint64_t events_hash = 0;                          // of every event and its time
  double virtual_seconds = 0;
  double kv_usage = 0;  // mean share of the pool in use while somebody waits
};

// `requests` in order of arrival. kInvalidArgument: the machine's numbers make no replica.
Result<ReplayReport> Replay(std::span<const RecordedRequest> requests, const ReplayOptions& options);

}  // namespace headrace
