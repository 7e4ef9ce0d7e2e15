// The production engine, scheduler and cache on virtual time under random traffic from a seed, against a scripted
// executor whose KV cache holds what was computed into it: every answer is compared with the one that its prompt and
// seed must give. Deterministic: the same options give the same trace, to the nanosecond. One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"
#include "simulate/faults.h"
#include "trace/decision_log.h"

namespace headrace {

struct SimulationOptions {
  uint64_t seed = 1;
  int requests = 1000;
  double requests_per_second = 20;  // Poisson arrivals
  FaultRates faults = {.cancel = 0.1};
  int64_t prompt_tokens_max = 600;
  int64_t new_tokens_max = 200;
  double shared_share = 0.5;  // of requests, whose prompt begins with one of kFamilies texts, for a random part
  // The machine.
  int64_t context = 2048;
  int32_t kv_blocks = 96;
  int32_t sequences_max = 16;
  int32_t batch_tokens_max = 128;
  int32_t shared_tokens_max = 0;  // EngineOptions
  int32_t waiting_max = 64;
  int64_t step_us = 6000;
  int64_t prefill_us_per_token = 50;
  int64_t row_us = 0;      // of a decode
  int32_t drafts_max = 0;  // 0: no speculation
  int32_t letters = 26;    // that answers are made of; few repeat themselves
  double queue_timeout_s = 30;
  double request_timeout_s = 0;  // 0: none
  bool prefix_cache = true;
  bool room_ahead = false;  // EngineOptions; without it there are preemptions
  // Below the pool; 0: none.
  int32_t memory_tier_blocks = 0;
  int32_t disk_tier_blocks = 0;
  int64_t disk_us_per_block = 1000;
  double damaged_share = 0;  // of steps before which a block on disk is damaged; for a fiftieth of it the disk is full
  DecisionSink* decisions = nullptr;  // EngineOptions
  bool check = true;                  // every invariant after every step, by CHECK
};

constexpr int kFamilies = 8;

struct SimulationReport {
  uint64_t trace_hash = 0;    // of every event with its time
  uint64_t answers_hash = 0;  // of the tokens of every request, whenever they came
  int finished = 0;           // stop or length
  int cancelled = 0;
  int refused = 0;        // full, at once
  int expired = 0;        // waited or took too long
  int failed = 0;         // by a fault of the executor
  int lost = 0;           // without an end: must be 0
  int wrong_answers = 0;  // tokens other than those that prompt and seed give: must be 0
  uint64_t dropped = 0;   // by the engine, cancelled
  int cancelled_in[kRequestStates] = {};
  uint64_t steps = 0, step_errors = 0, preemptions = 0;
  uint64_t prompt_tokens = 0, generated_tokens = 0;  // computed
  uint64_t rows = 0;
  uint64_t drafted_tokens = 0, accepted_tokens = 0;
  uint64_t prefix_asked_tokens = 0, prefix_hit_tokens = 0, prefix_evictions = 0;
  uint64_t restored_blocks = 0, damaged_blocks = 0;  // of both tiers
  TimeNs virtual_time = 0;
  double ttft_ms_p50 = 0, ttft_ms_p99 = 0;
  int32_t kv_blocks_left_in_use = 0;  // after the last request: must be 0
};

Result<SimulationReport> RunSimulation(const SimulationOptions& options);

}  // namespace headrace
