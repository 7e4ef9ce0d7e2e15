// The production engine, scheduler and cache on virtual time: random traffic from a seed against a scripted executor.
// Deterministic: the same options give the same trace, to the nanosecond. One thread.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/result.h"

namespace headrace {

struct SimulationOptions {
  uint64_t seed = 1;
  int requests = 1000;
  double requests_per_second = 20;  // Poisson arrivals
  double cancelled_share = 0.1;     // of requests, at a random later moment
  int64_t prompt_tokens_max = 600;
  int64_t new_tokens_max = 200;
  double shared_share = 0.5;  // of requests, whose prompt begins with one of kFamilies texts, for a random part
  // The machine.
  int64_t context = 2048;
  int32_t kv_blocks = 96;
  int32_t sequences_max = 16;
  int32_t batch_tokens_max = 128;
  int32_t waiting_max = 64;
  int64_t step_us = 6000;
  int64_t prefill_us_per_token = 50;
  int64_t row_us = 0;      // of a decode
  int32_t drafts_max = 0;  // 0: no speculation
  int32_t letters = 26;    // that answers are made of; few repeat themselves
  double queue_timeout_s = 30;
  bool prefix_cache = true;
  // Below the pool; 0: none.
  int32_t memory_tier_blocks = 0;
  int32_t disk_tier_blocks = 0;
  int64_t disk_us_per_block = 1000;
  double damaged_share = 0;  // of steps before which a block on disk is damaged; for a fiftieth of it the disk is full
  bool check = true;         // every invariant after every step, by CHECK
};

constexpr int kFamilies = 8;

struct SimulationReport {
  uint64_t trace_hash = 0;    // of every event with its time
  uint64_t answers_hash = 0;  // of the tokens of every request, whenever they came
  int finished = 0;           // stop or length
  int cancelled = 0;
  int refused = 0;  // full, at once
  int expired = 0;  // waited too long
  int lost = 0;     // neither: must be 0
  uint64_t steps = 0, preemptions = 0;
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
