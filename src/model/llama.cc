#include "model/llama.h"

#include <algorithm>

#include "base/check.h"
#include "base/exact_math.h"

namespace headrace {
namespace {

// Panels are multiplied two at a time. A claim is as many pairs as take about kClaimNs: long beside the claim (20 ns),
// short beside what a preempted thread would hold up. A pair's time, roughly, on the slower of the machines measured:
constexpr int64_t kClaimNs = 4000;
constexpr int64_t PairNs(int64_t rows, int64_t groups) { return groups * (30 + 4 * rows); }

static_assert(kWidthMax / kGroup <= kGroupsMax);

// Rows that every worker quantises for itself.
constexpr int64_t kOwnRowsMax = kTileColumns;
// Rows of one claim where rows are cheap and share no cache line.
constexpr int64_t kEmbedRows = 16;

// Activations::wide_ratio by what the product makes. Chosen on SmolLM2-135M Q4_1 (4,096 positions, KL to fp32 and
// top-1): 1 everywhere 0.00049, 98.5 %, for 20 % more products; these 0.00068, 98.5 %, for 10 %. Left out for one
// product at a time: q, k, v 0.00126, 97.7 %; o 0.00057, 98.6 %; gate, up 0.00112, 98.1 %; down 0.00088, 97.9 %; head
// 0.00111, 97.8 %.
constexpr float kWideQkv = 0.5f, kWideOutput = 4, kWideGateUp = 4, kWideDown = 2, kWideHead = 0.5f;

// Plain operations, none fused, here and in Rotate: the compiler may vectorise them, the bits stay.
void Scale(float factor, int64_t n, float* x) {
  if (factor == 1) return;
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}
void Add(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + x[i];
}

}  // namespace

LlamaModel::LlamaModel(const ModelConfig& config, const KernelTable& kernels, const Limits& limits)
    : config_(config), kernels_(kernels), limits_(limits) {}

Status LlamaModel::AllocateScratch(int threads) {
  HR_ASSIGN_OR_RETURN(scratch_,
                      StepScratch::Allocate(config_, limits_.rows_max, limits_.logit_rows_max, kOwnRowsMax, threads));
  for (auto* runs : {&attention_runs_, &store_runs_}) runs->reserve(static_cast<size_t>(limits_.rows_max));
  wanted_runs_.reserve(static_cast<size_t>(limits_.logit_rows_max));
  return {};
}

uint64_t LlamaModel::scratch_bytes() const {
  return scratch_.bytes() + 2 * (rope_.sine.size() + window_rope_.sine.size()) * sizeof(float);
}

void LlamaModel::FillRopeTable(const RopeConfig& rope, const std::vector<float>& factors, RopeTable* out) const {
  double magnitude = 1;
  const std::vector<double> frequencies = RopeFrequencies(rope, factors, &magnitude);
  const size_t pairs = frequencies.size();
  out->cosine.resize(static_cast<size_t>(limits_.context) * pairs);
  out->sine.resize(out->cosine.size());
  for (size_t position = 0; position < static_cast<size_t>(limits_.context); ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      double sine, cosine;
      ExactSinCos(static_cast<double>(position) * frequencies[i], &sine, &cosine);
      out->cosine[position * pairs + i] = static_cast<float>(cosine * magnitude);
      out->sine[position * pairs + i] = static_cast<float>(sine * magnitude);
    }
  }
}

void LlamaModel::Forward(ComputePool& pool, const ForwardBatch& batch, const KvPages& kv, float* logits) {
  PrepareStep(batch);
  pool.Run([&](int worker) {
    const Step step{pool, worker, batch, kv, static_cast<int64_t>(batch.token_ids.size()), &scratch_.hidden};
    Embed(step);
    for (int l = 0; l < config_.layers; ++l) RunLayer(step, l);
    Head(step, logits);
  });
}

void LlamaModel::RunLayer(const Step& step, int l) {
  const Layer& layer = layers_[static_cast<size_t>(l)];
  StepScratch& s = scratch_;
  const Product qkv[] = {{&layer.q, s.q.data, s.q.stride, false},
                         {&layer.k, s.k.data, s.k.stride, false},
                         {&layer.v, s.v.data, s.v.stride, false}};
  Multiply(step, Norm(step, layer.attention_norm, kWideQkv), qkv);
  const bool rows_end = l + 1 == config_.layers && RowsEnd(step);
  RotateStoreAttend(step, l, rows_end);
  if (!rows_end) return FinishLayer(step, layer, s.attended);
  GatherWanted(step);
  const auto wanted = static_cast<int64_t>(step.batch.logit_rows.size());
  if (wanted > 0) FinishLayer({step.pool, step.worker, step.batch, step.kv, wanted, &s.wanted}, layer, s.q);
}

void LlamaModel::FinishLayer(const Step& step, const Layer& layer, const ScratchRows& attended) {
  AddProduct(step, layer.o, MakeActivations(step, attended, step.rows, config_.q_width(), kWideOutput),
             layer.post_attention_norm);
  MultiplyGateUp(step, layer, Norm(step, layer.ffn_norm, kWideGateUp));
  AddProduct(step, layer.down, MakeActivations(step, scratch_.gate, step.rows, config_.ffn_width, kWideDown),
             layer.post_ffn_norm);
}

void LlamaModel::GatherWanted(const Step& step) {
  step.pool.For(step.worker, static_cast<int64_t>(step.batch.logit_rows.size()), [&](int64_t i) {
    const int64_t row = step.batch.logit_rows[static_cast<size_t>(i)];
    std::copy_n(scratch_.attended.Row(row), config_.q_width(), scratch_.q.Row(i));
    std::copy_n(scratch_.hidden.Row(row), config_.width, scratch_.wanted.Row(i));
  });
}

void LlamaModel::PrepareStep(const ForwardBatch& batch) {
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
}

void LlamaModel::Embed(const Step& step) {
  step.pool.ForRanges(step.worker, step.rows, kEmbedRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      UnpackRow(embedding_, step.batch.token_ids[static_cast<size_t>(row)], scratch_.hidden.Row(row));
      Scale(config_.embedding_scale, config_.width, scratch_.hidden.Row(row));
    }
  });
}

Activations LlamaModel::MakeActivations(const Step& step, const ScratchRows& values, int64_t rows, int64_t columns,
                                        float wide_ratio) {
  return MakeActivations(step, values, values, rows, columns, wide_ratio, [](int64_t, float*) {});
}

template <typename Make>
Activations LlamaModel::MakeActivations(const Step& step, const ScratchRows& values, const ScratchRows& own,
                                        int64_t rows, int64_t columns, float wide_ratio, Make make) {
  if (rows <= kOwnRowsMax) {
    const Activations x = scratch_.OwnOver(step.worker, own, rows, columns, wide_ratio);
    for (int64_t row = 0; row < rows; ++row) {
      make(row, own.Row(row));
      kernels_.quantize_row(x, row);
    }
    QuantizeWideGroups(kernels_, x, 0);
    return x;
  }
  // A tile's rows lie in the same cache lines: one worker writes them.
  const Activations x = scratch_.Over(values, rows, columns, wide_ratio);
  step.pool.For(step.worker, x.tiles(), [&](int64_t tile) {
    for (int64_t row = tile * kTileColumns, end = row + x.TileWidth(tile); row < end; ++row) {
      make(row, values.Row(row));
      kernels_.quantize_row(x, row);
    }
  });
  step.pool.For(step.worker, x.chunks(), [&](int64_t chunk) { QuantizeWideGroups(kernels_, x, chunk); });
  return x;
}

Activations LlamaModel::Norm(const Step& step, const float* weight, float wide_ratio) {
  return MakeActivations(step, scratch_.normed, scratch_.OwnValues(step.worker), step.rows, config_.width, wide_ratio,
                         [&](int64_t row, float* out) {
                           kernels_.rms_norm(step.hidden->Row(row), weight, config_.norm_eps, config_.width, out);
                         });
}

void LlamaModel::Multiply(const Step& step, const Activations& x, std::span<const Product> products) {
  const auto pairs_of = [](const Product& p) { return (p.weights->panels() + 1) / 2; };
  int64_t pairs = 0;
  for (const Product& p : products) pairs += pairs_of(p);
  const int64_t grain = std::max<int64_t>(1, kClaimNs / PairNs(x.rows, x.groups()));
  step.pool.ForRanges(step.worker, pairs, grain, [&](int64_t begin, int64_t end) {
    int64_t base = 0;
    for (const Product& p : products) {
      const int64_t first = std::max<int64_t>(begin - base, 0), last = std::min(end - base, pairs_of(p));
      const MatMul op{*p.weights, x, p.out, p.out_stride, p.accumulate};
      if (first < last) kernels_.matmul(op, 2 * first, std::min(p.weights->panels(), 2 * last));
      base += pairs_of(p);
    }
  });
}

// What is changed before it is added lies in `normed`, which no stage reads any more.
void LlamaModel::AddProduct(const Step& step, const PackedMatrix& weights, const Activations& x, const float* norm) {
  const bool plain = norm == nullptr && config_.residual_scale == 1;
  const ScratchRows& out = plain ? *step.hidden : scratch_.normed;
  const Product product[] = {{&weights, out.data, out.stride, plain}};
  Multiply(step, x, product);
  if (plain) return;
  step.pool.ForRanges(step.worker, step.rows, kEmbedRows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* added = out.Row(row);
      if (norm != nullptr) kernels_.rms_norm(added, norm, config_.norm_eps, config_.width, added);
      Scale(config_.residual_scale, config_.width, added);
      Add(added, config_.width, step.hidden->Row(row));
    }
  });
}

void LlamaModel::MultiplyGateUp(const Step& step, const Layer& layer, const Activations& x) {
  const ScratchRows& gate = scratch_.gate;
  const GateUp op{{layer.gate, x, gate.data, gate.stride, false}, layer.up, scratch_.up.data};
  const int64_t panels = layer.gate.panels(), grain = std::max<int64_t>(1, kClaimNs / (2 * PairNs(x.rows, x.groups())));
  step.pool.ForRanges(step.worker, (panels + 1) / 2, grain, [&](int64_t begin, int64_t end) {
    headrace::MultiplyGateUp(kernels_, op, config_.family->gate, 2 * begin, std::min(panels, 2 * end));
  });
}

void LlamaModel::Rotate(const RopeTable& rope, float* x, int64_t position) const {
  const int pairs = config_.rope.dims / 2;
  kernels_.rotate({x, rope.cosine.data() + position * pairs, rope.sine.data() + position * pairs, pairs,
                   config_.rope.pairing == RopeConfig::Pairing::kInterleaved});
}

void LlamaModel::FinishHeads(const Layer& layer, int64_t head, float* q, float* k, float* v) const {
  const int64_t n = config_.head_dim, group = config_.group_heads();
  if (layer.q_bias != nullptr) Add(layer.q_bias + head * group * n, group * n, q);
  if (layer.k_bias != nullptr) Add(layer.k_bias + head * n, n, k);
  if (layer.v_bias != nullptr) Add(layer.v_bias + head * n, n, v);
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
    const int64_t at = ((layer * step.kv.blocks + block) * config_.kv_heads + head) * page;
    kernels_.store_kv({k, scratch_.v.Row(row) + element, config_.head_dim, static_cast<int>(position % kPageTokens),
                       step.kv.type, step.kv.k + at, step.kv.v + at});
  }
}

void LlamaModel::Attend(const Step& step, int layer, const RowRun& run, int64_t head) {
  const int64_t page = KvPageBytes(step.kv.type, config_.head_dim);
  const ForwardSpan& span = step.batch.spans[static_cast<size_t>(run.span)];
  const int64_t first = head * config_.group_heads() * config_.head_dim;
  const int64_t at = (layer * step.kv.blocks * config_.kv_heads + head) * page;
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
  op.block_stride = config_.kv_heads * page;
  op.scratch = scratch_.attention + step.worker * AttentionScratchFloats(op.group_heads, op.head_dim);
  kernels_.attend(op);
}

void LlamaModel::RotateStoreAttend(const Step& step, int layer, bool rows_end) {
  const int64_t heads = config_.kv_heads;
  const auto each = [&](const std::vector<RowRun>& runs, auto&& fn) {
    step.pool.For(step.worker, static_cast<int64_t>(runs.size()) * heads,
                  [&](int64_t unit) { fn(runs[static_cast<size_t>(unit / heads)], unit % heads); });
  };
  const bool at_once = single_rows_ && !rows_end;  // else a row attends to keys that another unit stores
  if (!at_once) each(store_runs_, [&](const RowRun& run, int64_t head) { RotateAndStore(step, layer, run, head); });
  each(rows_end ? wanted_runs_ : attention_runs_, [&](const RowRun& run, int64_t head) {
    if (at_once) RotateAndStore(step, layer, run, head);
    Attend(step, layer, run, head);
  });
}

void LlamaModel::Head(const Step& step, float* logits) {
  const auto wanted = static_cast<int64_t>(step.batch.logit_rows.size());
  if (wanted == 0) return;
  const bool rows_end = RowsEnd(step);
  const auto norm = [&](int64_t i, float* out) {
    const float* hidden =
        rows_end ? scratch_.wanted.Row(i) : scratch_.hidden.Row(step.batch.logit_rows[static_cast<size_t>(i)]);
    kernels_.rms_norm(hidden, output_norm_, config_.norm_eps, config_.width, out);
    Scale(config_.logit_scale, config_.width, out);  // of the logits: the product is linear
  };
  const Product product[] = {{&head_, logits, config_.vocab_size, false}};
  Multiply(
      step,
      MakeActivations(step, scratch_.normed, scratch_.OwnValues(step.worker), wanted, config_.width, kWideHead, norm),
      product);
}

}  // namespace headrace
