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

// Many rows are multiplied in blocks, one for each worker, of this many chunks at least: what a worker quantises it
// then multiplies itself, out of its own second-level cache. Fewer chunks make unpacking the weights again for each
// block dear.
constexpr int64_t kBlockChunks = 3;

static_assert(kWidthMax / kGroup <= kGroupsMax);

// Rows that every worker quantises for itself.
constexpr int64_t kOwnRowsMax = kTileColumns;
// Chunks for each worker from which on one quantises whole chunks.
constexpr int64_t kChunksEach = 3;
// Rows of one claim where rows are cheap and share no cache line.
constexpr int64_t kEmbedRows = 16;

// Activations::wide_ratio by what the product makes. Chosen on SmolLM2-135M Q4_1 (4,096 positions, KL to fp32 and
// top-1): 1 everywhere 0.00049, 98.5 %, for 20 % more products; these 0.00068, 98.5 %, for 10 %. Left out for one
// product at a time: q, k, v 0.00126, 97.7 %; o 0.00057, 98.6 %; gate, up 0.00112, 98.1 %; down 0.00088, 97.9 %; head
// 0.00111, 97.8 %.
constexpr float kWideQkv = 0.5f, kWideOutput = 4, kWideGateUp = 4, kWideDown = 2, kWideHead = 0.5f;

// Plain operations, none fused: the compiler may vectorise them, the bits stay.
void Scale(float factor, int64_t n, float* x) {
  if (factor == 1) return;
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}
void Add(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] + x[i];
}

struct Pairs {
  int64_t begin, end;
};

// Shares the products of x's rows with `pairs` pairs of panels among the workers: fn(rows, first row, pairs).
template <typename Fn>
void ForRowsAndPairs(ComputePool& pool, int worker, const Activations& x, int64_t pairs, int pair_products, Fn&& fn) {
  const int64_t chunks = x.chunks(), blocks = std::clamp<int64_t>(chunks / kBlockChunks, 1, pool.active());
  const int64_t grain = std::max<int64_t>(1, kClaimNs / (pair_products * PairNs(x.rows / blocks, x.groups())));
  pool.ForRanges(worker, blocks * pairs, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin, count; unit < end; unit += count) {
      const int64_t block = unit / pairs, pair = unit % pairs;
      count = std::min(pairs - pair, end - unit);
      const int64_t first = chunks * block / blocks * kWideChunkRows;
      const int64_t last = std::min(chunks * (block + 1) / blocks * kWideChunkRows, x.rows);
      fn(x.Rows(first, last - first), first, Pairs{pair, pair + count});
    }
  });
}

}  // namespace

LlamaModel::LlamaModel(const ModelConfig& config, const KernelTable& kernels, const Limits& limits)
    : config_(config), kernels_(kernels), limits_(limits) {}

Status LlamaModel::AllocateScratch(int threads) {
  ReserveRuns(threads);
  HR_ASSIGN_OR_RETURN(scratch_, StepScratch::Allocate(config_, limits_.rows_max, limits_.logit_rows_max, kOwnRowsMax,
                                                      PartialPagesMax(), threads));
  return {};
}

uint64_t LlamaModel::scratch_bytes() const {
  const int pairs = (config_.rope.dims + (config_.window_rope ? config_.window_rope->dims : 0)) / 2;
  return scratch_.bytes() + static_cast<uint64_t>(limits_.context * pairs * 2) * sizeof(float);
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
  PrepareStep(batch, pool.active());
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
  const Activations x = scratch_.Over(values, rows, columns, wide_ratio);
  const auto quantise = [&](int64_t first, int64_t count) {
    for (int64_t row = first, end = std::min(first + count, rows); row < end; ++row) {
      make(row, values.Row(row));
      kernels_.quantize_row(x, row);
    }
  };
  if (x.chunks() >= kChunksEach * step.pool.active()) {
    step.pool.For(step.worker, x.chunks(), [&](int64_t chunk) {
      quantise(chunk * kWideChunkRows, kWideChunkRows);
      QuantizeWideGroups(kernels_, x, chunk);
    });
    return x;
  }
  // A tile's rows lie in the same cache lines: one worker writes them.
  step.pool.For(step.worker, x.tiles(), [&](int64_t tile) { quantise(tile * kTileColumns, kTileColumns); });
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
  ForRowsAndPairs(step.pool, step.worker, x, pairs, 1, [&](const Activations& rows, int64_t first_row, Pairs claimed) {
    int64_t base = 0;
    for (const Product& p : products) {
      const int64_t first = std::max<int64_t>(claimed.begin - base, 0),
                    last = std::min(claimed.end - base, pairs_of(p));
      const MatMul op{*p.weights, rows, p.out + first_row * p.out_stride, p.out_stride, p.accumulate};
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
  const int64_t panels = layer.gate.panels();
  ForRowsAndPairs(
      step.pool, step.worker, x, (panels + 1) / 2, 2, [&](const Activations& rows, int64_t first_row, Pairs claimed) {
        const GateUp op{
            {layer.gate, rows, gate.Row(first_row), gate.stride, false}, layer.up, scratch_.up.Row(first_row)};
        headrace::MultiplyGateUp(kernels_, op, config_.family->gate, 2 * claimed.begin,
                                 std::min(panels, 2 * claimed.end));
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
