// The attention stages of a step: which rows attend together, keys and values into their pages, and what attention
// gives.
#include <algorithm>

#include "base/check.h"
#include "model/llama.h"

namespace headrace {
namespace {

// Attention with fewer units a thread splits rows of more than a segment's pages: 8 pages are about 5 us.
constexpr int kUnitsEach = 4;
constexpr int32_t kSegmentPages = 8;
constexpr int64_t kPartialPagesLeast = 4096;  // of all heads; a row of the whole context always has room

// Plain operations: the compiler may vectorise them, the bits stay.
void AddBias(const float* bias, int64_t first, int64_t n, float* out) {
  if (bias == nullptr) return;
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + bias[first + i];
}

}  // namespace

void LlamaModel::ReserveRuns(int threads) {
  for (auto* runs : {&attention_runs_, &store_runs_}) runs->reserve(static_cast<size_t>(limits_.rows_max));
  wanted_runs_.reserve(static_cast<size_t>(limits_.logit_rows_max));
  const int64_t split_rows = static_cast<int64_t>(kUnitsEach) * threads;
  split_rows_.reserve(static_cast<size_t>(split_rows));
  segments_.reserve(static_cast<size_t>(PartialPagesMax() / kSegmentPages + split_rows));
}

void LlamaModel::PrepareStep(const ForwardBatch& batch, int threads) {
  CHECK_LE(static_cast<int64_t>(batch.token_ids.size()), limits_.rows_max);
  CHECK_LE(static_cast<int64_t>(batch.logit_rows.size()), limits_.logit_rows_max);
  attention_runs_.clear();
  store_runs_.clear();
  wanted_runs_.clear();
  single_rows_ = true;
  size_t wanted = 0;
  for (size_t i = 0; i < batch.spans.size(); ++i) {
    const ForwardSpan& span = batch.spans[i];
    CHECK_LE(int64_t{span.first_position} + span.rows, limits_.context);
    single_rows_ = single_rows_ && span.rows == 1;
    for (; wanted < batch.logit_rows.size() && batch.logit_rows[wanted] < span.first_row + span.rows; ++wanted)
      wanted_runs_.push_back({static_cast<int32_t>(i), batch.logit_rows[wanted], 1});
    for (int32_t r = 0, count; r < span.rows; r += count) {
      count = std::min(kAttentionRowsMax, span.rows - r);
      attention_runs_.push_back({static_cast<int32_t>(i), span.first_row + r, count});
    }
    for (int32_t r = 0, count; r < span.rows; r += count) {
      count = std::min(kPageTokens - (span.first_position + r) % kPageTokens, span.rows - r);
      store_runs_.push_back({static_cast<int32_t>(i), span.first_row + r, count});
    }
  }
  SplitLongRows(batch, threads);
}

int64_t LlamaModel::PartialPagesMax() const {
  return std::max<int64_t>(kPartialPagesLeast, config_.kv_heads * ((limits_.context + kPageTokens - 1) / kPageTokens));
}

// Few units leave threads idle, or waiting for the longest: single rows of long sequences become several.
void LlamaModel::SplitLongRows(const ForwardBatch& batch, int threads) {
  split_rows_.clear();
  segments_.clear();
  if (static_cast<int64_t>(attention_runs_.size()) * config_.kv_heads >= int64_t{kUnitsEach} * threads) return;
  int64_t used = 0;
  std::erase_if(attention_runs_, [&](const RowRun& run) {
    const ForwardSpan& span = batch.spans[static_cast<size_t>(run.span)];
    const int64_t tokens = span.first_position + (run.first - span.first_row) + 1;
    const int64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
    const bool fits =
        used + pages * config_.kv_heads <= PartialPagesMax() && split_rows_.size() < split_rows_.capacity();
    if (run.count > 1 || pages <= kSegmentPages || !fits) return false;
    for (int64_t page = 0; page < pages; page += kSegmentPages) {
      segments_.push_back({static_cast<int32_t>(split_rows_.size()), static_cast<int32_t>(page),
                           static_cast<int32_t>(std::min(page + kSegmentPages, pages))});
    }
    split_rows_.push_back({run, tokens, pages, used});
    used += pages * config_.kv_heads;
    return true;
  });
}

void LlamaModel::Rotate(const RopeTable& rope, float* x, int64_t position) const {
  const int pairs = config_.rope.dims / 2;
  kernels_.rotate({x, rope.cosine.data() + position * pairs, rope.sine.data() + position * pairs, pairs,
                   config_.rope.pairing == RopeConfig::Pairing::kInterleaved});
}

void LlamaModel::FinishHeads(const Layer& layer, int64_t head, float* q, float* k, float* v) const {
  const int64_t n = config_.head_dim, group = config_.group_heads();
  AddBias(layer.q_bias, head * group * n, group * n, q);
  AddBias(layer.k_bias, head * n, n, k);
  AddBias(layer.v_bias, head * n, n, v);
  if (layer.k_norm != nullptr) kernels_.rms_norm(k, layer.k_norm, config_.norm_eps, n, k);
  for (int64_t h = 0; h < group && layer.q_norm != nullptr; ++h)
    kernels_.rms_norm(q + h * n, layer.q_norm, config_.norm_eps, n, q + h * n);
}

// One KV head of a run: its queries and keys are rotated, its keys and values stored.
void LlamaModel::RotateAndStore(const Step& step, int layer, const RowRun& run, int64_t head) {
  const int64_t page = KvPageBytes(step.kv.type, config_.head_dim), element = head * config_.head_dim;
  const ForwardSpan& span = step.batch.spans[static_cast<size_t>(run.span)];
  for (int64_t row = run.first; row < run.first + run.count; ++row) {
    const int64_t position = span.first_position + (row - span.first_row);
    float* q = scratch_.q.Row(row) + element * config_.group_heads();
    float* k = scratch_.k.Row(row) + element;
    FinishHeads(layers_[static_cast<size_t>(layer)], head, q, k, scratch_.v.Row(row) + element);
    const RopeTable& rope = *layers_[static_cast<size_t>(layer)].rope;
    for (int h = 0; h < config_.group_heads(); ++h) Rotate(rope, q + h * config_.head_dim, position);
    Rotate(rope, k, position);
    const int64_t block = step.batch.blocks[static_cast<size_t>(span.first_block + position / kPageTokens)];
    const int64_t at = ((block * config_.layers + layer) * config_.kv_heads + head) * page;
    kernels_.store_kv({k, scratch_.v.Row(row) + element, config_.head_dim, static_cast<int>(position % kPageTokens),
                       step.kv.type, step.kv.k + at, step.kv.v + at});
  }
}

Attention LlamaModel::AttentionOf(const Step& step, int layer, const RowRun& run, int64_t head) const {
  const int64_t page = KvPageBytes(step.kv.type, config_.head_dim);
  const ForwardSpan& span = step.batch.spans[static_cast<size_t>(run.span)];
  const int64_t first = head * config_.group_heads() * config_.head_dim;
  const int64_t at = (layer * config_.kv_heads + head) * page;
  Attention op;
  op.queries = scratch_.q.Row(run.first) + first;
  op.query_stride = scratch_.q.stride;
  op.out = scratch_.attended.Row(run.first) + first;
  op.out_stride = scratch_.attended.stride;
  op.rows = run.count;
  op.first_position = span.first_position + (run.first - span.first_row);
  op.window = config_.WindowOf(layer);
  op.group_heads = config_.group_heads();
  op.head_dim = config_.head_dim;
  op.softmax_scale = config_.attention_scale;
  op.kv_type = step.kv.type;
  op.block_table = step.batch.blocks.data() + span.first_block;
  op.k_pages = step.kv.k + at;
  op.v_pages = step.kv.v + at;
  op.block_stride = config_.layers * config_.kv_heads * page;
  op.scratch = scratch_.attention + step.worker * AttentionScratchFloats(op.group_heads, op.head_dim);
  return op;
}

float* LlamaModel::PartialsOf(const SplitRow& row, int64_t head) const {
  const int64_t page_floats = config_.group_heads() * PartialFloats(config_.head_dim);
  return scratch_.partials + (row.first_partial + head * row.pages) * page_floats;
}

void LlamaModel::AttendSegment(const Step& step, int layer, const Segment& segment, int64_t head) {
  const SplitRow& row = split_rows_[static_cast<size_t>(segment.row)];
  Attention op = AttentionOf(step, layer, row.run, head);
  op.first_page = segment.first_page;
  op.end_page = segment.end_page;
  op.partials = PartialsOf(row, head);
  kernels_.attend(op);
}

void LlamaModel::MergeSegments(const SplitRow& row, int layer, int64_t head) {
  const int64_t heads = config_.group_heads(), window = config_.WindowOf(layer), tokens = row.tokens;
  const int64_t first_page = window > 0 && tokens > window ? (tokens - window) / kPageTokens : 0;
  kernels_.merge_attention({PartialsOf(row, head), first_page, row.pages, static_cast<int>(heads), config_.head_dim,
                            scratch_.attended.Row(row.run.first) + head * heads * config_.head_dim});
}

void LlamaModel::RotateStoreAttend(const Step& step, int layer, bool rows_end) {
  const auto heads = static_cast<size_t>(config_.kv_heads);
  const auto each = [&](size_t count, auto&& fn) {
    step.pool.For(step.worker, static_cast<int64_t>(count * heads), [&](int64_t unit) {
      fn(static_cast<size_t>(unit) / heads, static_cast<int64_t>(static_cast<size_t>(unit) % heads));
    });
  };
  // Else a row attends to keys that another unit stores.
  const bool at_once = single_rows_ && !rows_end && split_rows_.empty();
  if (!at_once) {
    each(store_runs_.size(), [&](size_t i, int64_t head) { RotateAndStore(step, layer, store_runs_[i], head); });
  }
  const std::vector<RowRun>& runs = rows_end ? wanted_runs_ : attention_runs_;
  const size_t segments = rows_end ? 0 : segments_.size();
  each(segments + runs.size(), [&](size_t i, int64_t head) {
    if (i < segments) return AttendSegment(step, layer, segments_[i], head);
    const RowRun& run = runs[i - segments];
    if (at_once) RotateAndStore(step, layer, run, head);
    kernels_.attend(AttentionOf(step, layer, run, head));
  });
  if (segments > 0)
    each(split_rows_.size(), [&](size_t i, int64_t head) { MergeSegments(split_rows_[i], layer, head); });
}

}  // namespace headrace
