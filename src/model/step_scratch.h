// The working memory of one step: every intermediate of Forward, in one huge-page buffer. Written again by each stage.
#pragma once

#include <cstdint>
#include <vector>

#include "base/huge_buffer.h"
#include "kernels/layout.h"
#include "model/model_config.h"

namespace headrace {

// Rows of floats. The stride is a cache line longer than a row, so that a column of rows does not fall into one set of
// the cache (a tenth of a prompt's products, measured).
struct ScratchRows {
  float* data = nullptr;
  int64_t stride = 0;

  float* Row(int64_t row) const { return data + row * stride; }
};

class StepScratch {
 public:
  // rows: of the largest step; own_rows: of the largest product whose activations every worker makes for itself.
  // logit_rows: rows of a step whose logits may be wanted; partial_pages: of rows whose attention is split.
  static Result<StepScratch> Allocate(const ModelConfig& config, int64_t rows, int64_t logit_rows, int64_t own_rows,
                                      int64_t partial_pages, int threads);

  uint64_t bytes() const { return buffer_.bytes(); }

  // The int8 form of `values`, for one product at a time.
  Activations Over(const ScratchRows& values, int64_t rows, int64_t columns, float wide_ratio) const;

  // A worker's own rows of values, as wide as the model, and the int8 form of these or others.
  ScratchRows OwnValues(int worker) const { return own_[static_cast<size_t>(worker)].values; }
  Activations OwnOver(int worker, const ScratchRows& values, int64_t rows, int64_t columns, float wide_ratio) const;

  ScratchRows hidden, wanted, normed, q, k, v, attended, gate, up;
  float* attention = nullptr;  // AttentionScratchFloats of each worker
  float* partials = nullptr;   // [partial_pages][group_heads][PartialFloats]

 private:
  struct Own {
    ScratchRows values;
    Activations activations;
  };

  HugeBuffer buffer_;
  Activations activations_;
  std::vector<Own> own_;  // one per worker
};

}  // namespace headrace
