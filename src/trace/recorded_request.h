// One request as it was recorded: when, how large, which blocks, how fast; never what it said. A plain value.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace headrace {

// The name of a block of prompt tokens: equal names, equal tokens from the prompt's begin. Recorded names are those of
// the KV cache, keyed, so that nobody can guess a text by its name; read ones have only `low`.
struct RecordedBlock {
  uint64_t high = 0, low = 0;
  bool operator==(const RecordedBlock&) const = default;
};

struct RecordedSampling {
  float temperature = 1, top_p = 1, min_p = 0;
  int32_t top_k = 0;  // 0: all
  uint64_t seed = 0;
  int64_t max_tokens = 0;  // 0: not given
  bool operator==(const RecordedSampling&) const = default;
};

enum class RecordedEnd : uint8_t { kUnknown, kStop, kLength, kCancelled, kRefused, kError };

struct RecordedRequest {
  int64_t arrival_us = 0;  // since the trace's begin
  uint64_t id = 0;         // not 0; unique in its trace
  uint64_t previous = 0;   // the turn before it in the same conversation; 0: none, or not recorded
  uint64_t tenant = 0;     // keyed hash of its name
  int32_t band = 2;        // queueing's Band; normal
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t cached_tokens = 0;          // of the prompt, found in the cache
  int32_t block_tokens = 64;          // tokens that a name stands for; the last block may be partly filled
  std::vector<RecordedBlock> blocks;  // names of the prompt's blocks, empty when not recorded
  RecordedSampling sampling;
  // Microseconds after arrival; -1: not reached or not recorded.
  int64_t started_us = -1, first_token_us = -1, end_us = -1;
  RecordedEnd end = RecordedEnd::kUnknown;

  bool operator==(const RecordedRequest&) const = default;
};

// Names the prompt by blocks of 64 tokens, as the KV cache does: a coarser name becomes as many as it stands for, the
// same ones each time. Nothing happens when it is so already. REQUIRES: block_tokens is a multiple of 64.
void NameBySmallBlocks(RecordedRequest* request);

// The rules that hold for every recorded request, whatever it was read from: kInvalidArgument names the field.
Status CheckRecorded(const RecordedRequest& request);

}  // namespace headrace
