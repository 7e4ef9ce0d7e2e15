// Decoders of the llama kind: RMSNorm, grouped-query attention with rotary positions, a gated feed-forward (Touvron et
// al., 2023). What a family adds or changes is data: its tensors (families/family.h) and scales (model_config.h).
// Forward runs one step's rows, of any mix of sequences, through all layers. Its bits depend on nothing but the weights
// and each row's own history (law 1): see the op headers in kernels/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/compute_pool.h"
#include "base/huge_buffer.h"
#include "kernels/kernel_table.h"
#include "model/families/family.h"
#include "model/model_config.h"
#include "model/step_scratch.h"

namespace headrace {

// Rows of one sequence in this step: rows [first_row, first_row + rows) at positions first_position, +1, …
struct ForwardSpan {
  int32_t first_row = 0;
  int32_t rows = 0;
  int32_t first_position = 0;
  int32_t first_block = 0;  // where the sequence's block table starts in ForwardBatch::blocks
};

// One step. Borrowed; rows <= rows_max given to the model.
struct ForwardBatch {
  std::span<const int32_t> token_ids;   // [rows]
  std::span<const ForwardSpan> spans;   // in row order, covering all rows
  std::span<const int32_t> blocks;      // block tables
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

// K and V pages of all layers: [block][layer][kv_head][page], so that a new block is new memory in one place (60 huge
// pages for the first token of a model of 30 layers, were a layer the outermost). Owned by the executor.
struct KvPages {
  KvType type = KvType::kInt16;
  std::byte* k = nullptr;
  std::byte* v = nullptr;
  int64_t blocks = 0;
};

class LlamaModel {
 public:
  // Checks every tensor's presence and shape, then packs all weights with all threads of `pool`, or reads them as they
  // were packed before. A value that is not finite is refused. The file is not touched after this. `context` bounds
  // positions; rows_max and logit_rows_max size the scratch.
  struct Limits {
    int64_t context = 0;
    int64_t rows_max = 0;
    int64_t logit_rows_max = 0;
  };
  struct LoadOptions {
    // Asked when all sizes are known and no memory is used yet: an error ends the load.
    std::function<Status(uint64_t weight_bytes, uint64_t scratch_bytes)> admit;
    std::string pack_folder;   // see pack_cache.h; "": always packed from the file
    std::string content_hash;  // ModelFile::ContentHash, where there is a folder
  };
  static Result<std::unique_ptr<LlamaModel>> Load(const ModelFile& file, const ModelConfig& config,
                                                  const KernelTable& kernels, ComputePool& pool, const Limits& limits,
                                                  const LoadOptions& options = {});

  const ModelConfig& config() const { return config_; }
  uint64_t weight_bytes() const { return weights_.bytes(); }
  std::span<const std::byte> weights() const { return {weights_.data(), weights_.bytes()}; }
  uint64_t scratch_bytes() const;
  // Whether rope takes LongRoPE's factors for long contexts: it changes every answer.
  bool long_factors() const { return TakesLongFactors(config_.rope, limits_.context); }
  // Tensors of the file that the model does not use.
  const std::vector<std::string>& unused_tensors() const { return unused_tensors_; }

  // logits: [batch.logit_rows.size()][vocab_size]. Allocates nothing. One caller at a time.
  void Forward(ComputePool& pool, const ForwardBatch& batch, const KvPages& kv, float* logits);

 private:
  // sine and cosine of each position and pair: [context][dims / 2].
  struct RopeTable {
    std::vector<float> cosine, sine;
  };
  // Vectors that the family has not are null.
  struct Layer {
    const float* attention_norm = nullptr;
    PackedMatrix q, k, v, o;
    const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
    const float *q_norm = nullptr, *k_norm = nullptr;
    const float* post_attention_norm = nullptr;
    const float* ffn_norm = nullptr;
    PackedMatrix gate, up, down;
    const float* post_ffn_norm = nullptr;
    const RopeTable* rope = nullptr;
  };
  // One product of a stage.
  struct Product {
    const PackedMatrix* weights;
    float* out;  // rows out_stride apart
    int64_t out_stride;
    bool accumulate;
  };
  class Loader;

  // What a worker needs in every stage of a step.
  struct Step {
    ComputePool& pool;
    int worker;
    const ForwardBatch& batch;
    const KvPages& kv;
    int64_t rows;
    const ScratchRows* hidden;  // of these rows
  };
  // Rows [first, first + count) of the step: consecutive tokens of one sequence.
  struct RowRun {
    int32_t span;
    int32_t first;
    int32_t count;
  };

  // One row of a long sequence, whose pages several units share. Its partials begin at page first_partial of each head.
  struct SplitRow {
    RowRun run;
    int64_t tokens;  // that it sees without a window
    int64_t pages;
    int64_t first_partial;
  };
  struct Segment {
    int32_t row;  // in split_rows_
    int32_t first_page, end_page;
  };

  LlamaModel(const ModelConfig& config, const KernelTable& kernels, const Limits& limits);
  Status AllocateScratch(int threads);
  void FillRopeTable(const RopeConfig& rope, const std::vector<float>& factors, RopeTable* out) const;
  void PrepareStep(const ForwardBatch& batch, int threads);
  void ReserveRuns(int threads);
  void SplitLongRows(const ForwardBatch& batch, int threads);
  int64_t PartialPagesMax() const;
  // The stages, called by every worker inside Run.
  void Embed(const Step& step);
  void RunLayer(const Step& step, int layer);
  void FinishLayer(const Step& step, const Layer& layer, const ScratchRows& attended);
  // Whether rows end in the last layer, once their keys and values are stored: nobody asks for their logits.
  static bool RowsEnd(const Step& step) { return step.batch.logit_rows.size() < static_cast<size_t>(step.rows); }
  // What attention gave for the rows whose logits are wanted, into `q`, and their hidden rows, into `wanted`.
  void GatherWanted(const Step& step);
  // hidden += residual_scale * norm(weights * x), the norm where it is not null.
  void AddProduct(const Step& step, const PackedMatrix& weights, const Activations& x, const float* norm);
  void Head(const Step& step, float* logits);
  Activations Norm(const Step& step, const float* weight, float wide_ratio);
  void Multiply(const Step& step, const Activations& x, std::span<const Product> products);
  void MultiplyGateUp(const Step& step, const Layer& layer, const Activations& x);
  // Calls make(row, out) for each row of the values to multiply and quantises what it wrote to `out`, a row of
  // `values`. A few rows are made by every worker for itself, in its `own` rows: that costs less than a barrier and
  // reading another processor's lines.
  template <typename Make>
  Activations MakeActivations(const Step& step, const ScratchRows& values, const ScratchRows& own, int64_t rows,
                              int64_t columns, float wide_ratio, Make make);
  // Quantises values that are there.
  Activations MakeActivations(const Step& step, const ScratchRows& values, int64_t rows, int64_t columns,
                              float wide_ratio);
  // Biases and head norms of one KV head: its k, v and the queries that share it.
  void FinishHeads(const Layer& layer, int64_t head, float* q, float* k, float* v) const;
  void RotateAndStore(const Step& step, int layer, const RowRun& run, int64_t head);
  Attention AttentionOf(const Step& step, int layer, const RowRun& run, int64_t head) const;
  float* PartialsOf(const SplitRow& row, int64_t head) const;
  void AttendSegment(const Step& step, int layer, const Segment& segment, int64_t head);
  void MergeSegments(const SplitRow& row, int layer, int64_t head);
  // rows_end: only rows whose logits are wanted attend.
  void RotateStoreAttend(const Step& step, int layer, bool rows_end);
  void Rotate(const RopeTable& rope, float* x, int64_t position) const;

  const ModelConfig config_;
  const KernelTable& kernels_;
  const Limits limits_;
  HugeBuffer weights_;
  std::vector<Layer> layers_;
  const float* output_norm_ = nullptr;
  PackedMatrix embedding_, head_;
  RopeTable rope_, window_rope_;  // the second one of layers with a window, where it is another
  std::vector<std::string> unused_tensors_;

  StepScratch scratch_;
  std::vector<RowRun> attention_runs_;  // at most kAttentionRowsMax rows each
  std::vector<RowRun> wanted_runs_;     // of the rows whose logits are wanted, one each
  std::vector<SplitRow> split_rows_;    // not among attention_runs_
  std::vector<Segment> segments_;
  std::vector<RowRun> store_runs_;  // within one page of the KV cache each
  bool single_rows_ = false;        // no sequence has more than one row in this step
};

}  // namespace headrace
