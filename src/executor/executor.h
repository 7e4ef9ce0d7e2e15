// The engine's one downward interface, so that a CPU, another device, several processes or a script can stand behind
// it. StepInput is flat and free of pointers (a rank can broadcast it); StepOutput holds ids and only what was asked.
// One step at a time: Submit, then Wait. Called by the engine's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_mask.h"
#include "sampling/sampler.h"

namespace headrace {

struct ExecutorDescription {
  std::string model;        // what is served
  std::string kernels;      // table in use
  std::string fingerprint;  // numerics fingerprint: equal fingerprints give equal bits
  int32_t vocab_size = 0;
  int64_t context = 0;       // longest sequence
  int32_t kv_blocks = 0;     // blocks of 64 tokens in the pool
  uint64_t block_bytes = 0;  // of what ReadBlock and WriteBlock move
  int32_t rows_max = 0;      // rows of one step
  int32_t logit_rows_max = 0;
  int32_t sequences_max = 0;
  int32_t drafts_max = 0;  // rows of one decoding sequence beyond its first that can sample, too
  int threads = 0;
  uint64_t weight_bytes = 0, kv_bytes = 0, scratch_bytes = 0;
};

// Rows of one sequence: [first_row, first_row + rows) at positions first_position, +1, …
struct StepSpan {
  uint64_t request = 0;  // unique per sequence
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  int32_t prompt_tokens = 0;
  int32_t first_block = 0;  // where its block table starts in StepInput::blocks
  int32_t block_count = 0;
};

// A row whose logits are wanted.
struct StepSample {
  int32_t row = 0;
  int32_t span = 0;
  int32_t target = -1;           // >= 0: report this token's log-probability instead of drawing
  int32_t top_logprobs = -1;     // < 0: none wanted
  uint64_t position = 0;         // of the token to draw: the counter of its random number
  int32_t first_adjustment = 0;  // in StepInput::adjustments
  int32_t adjustment_count = 0;
  SamplingParams params;
  int32_t first_mask_word = -1;  // in StepInput::masks: MaskWords of the vocabulary; -1: every token may be drawn
};

struct StepInput {
  std::vector<int32_t> token_ids;   // one per row
  std::vector<StepSpan> spans;      // in row order
  std::vector<int32_t> blocks;      // block tables, one after another
  std::vector<StepSample> samples;  // in row order; of a sequence that verifies drafts, each row
  std::vector<TokenAdjustment> adjustments;
  std::vector<uint32_t> masks;  // base/token_mask.h, one after another

  void Clear() {
    token_ids.clear();
    spans.clear();
    blocks.clear();
    samples.clear();
    adjustments.clear();
    masks.clear();
  }
};

// Empty: every token may be drawn.
inline std::span<const uint32_t> MaskOf(const StepInput& input, const StepSample& sample, int32_t vocab_size) {
  if (sample.first_mask_word < 0) return {};
  return std::span(input.masks).subspan(static_cast<size_t>(sample.first_mask_word), MaskWords(vocab_size));
}

struct StepOutput {
  std::vector<SampleResult> results;  // one per sample
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual const ExecutorDescription& Describe() const = 0;
  // `input` must live until Wait returns.
  virtual Status Submit(const StepInput& input) = 0;
  // The output is valid until the next Submit. An error fails every sequence of the step, never the process.
  virtual Result<const StepOutput*> Wait() = 0;

  // A block of the pool as bytes, which mean something to executors of the same fingerprint and block_bytes only.
  // Between steps, never between Submit and Wait. REQUIRES: spans of block_bytes.
  virtual void ReadBlock(int32_t block, std::span<std::byte> out) const = 0;
  virtual void WriteBlock(int32_t block, std::span<const std::byte> bytes) = 0;
};

}  // namespace headrace
