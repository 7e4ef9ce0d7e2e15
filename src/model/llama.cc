#include "model/llama.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/exact_math.h"

namespace headrace {
namespace {

// A work unit of a product: long enough that claiming it (0.1 us) costs nothing, short enough that a preempted thread
// delays a stage by little. At least kUnitsPerThread units a thread where the matrix has them.
constexpr int64_t kUnitsPerThread = 4;

// Activations::wide_ratio by what the product makes. Chosen on SmolLM2-135M Q4_1 (4,096 positions, KL to fp32 and
// top-1): 1 everywhere 0.00049, 98.5 %, for 20 % more products; these 0.00068, 98.5 %, for 10 %. Left out for one
// product at a time: q, k, v 0.00126, 97.7 %; o 0.00057, 98.6 %; gate, up 0.00112, 98.1 %; down 0.00088, 97.9 %; head
// 0.00111, 97.8 %.
constexpr float kWideQkv = 0.5f, kWideOutput = 4, kWideGateUp = 4, kWideDown = 2, kWideHead = 0.5f;

}  // namespace

LlamaModel::LlamaModel(const ModelConfig& config, const KernelTable& kernels, const Limits& limits)
    : config_(config), kernels_(kernels), limits_(limits) {}

Status LlamaModel::AllocateScratch(int threads) {
  HR_ASSIGN_OR_RETURN(scratch_, StepScratch::Allocate(config_, limits_.rows_max, threads));
  row_span_.resize(static_cast<size_t>(limits_.rows_max));
  attention_units_.reserve(static_cast<size_t>(limits_.rows_max));
  return {};
}

uint64_t LlamaModel::scratch_bytes() const {
  return scratch_.bytes() + (rope_cos_.size() + rope_sin_.size()) * sizeof(float);
}

void LlamaModel::FillRopeTable(const std::vector<float>& factors) {
  double magnitude = 1;
  const std::vector<double> frequencies = RopeFrequencies(config_.rope, factors, &magnitude);
  const size_t pairs = frequencies.size();
  rope_cos_.resize(static_cast<size_t>(limits_.context) * pairs);
  rope_sin_.resize(rope_cos_.size());
  for (size_t position = 0; position < static_cast<size_t>(limits_.context); ++position) {
    for (size_t i = 0; i < pairs; ++i) {
      double sine, cosine;
      ExactSinCos(static_cast<double>(position) * frequencies[i], &sine, &cosine);
      rope_cos_[position * pairs + i] = static_cast<float>(cosine * magnitude);
      rope_sin_[position * pairs + i] = static_cast<float>(sine * magnitude);
    }
  }
}

void LlamaModel::Forward(ComputePool& pool, const ForwardBatch& batch, const KvPages& kv, float* logits) {
  PrepareStep(batch);
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  pool.Run([&](int worker) {
    Embed(pool, batch);
    for (int l = 0; l < config_.layers; ++l) {
      const Layer& layer = layers_[static_cast<size_t>(l)];
      Activations x = scratch_.Over(scratch_.normed, rows, config_.width, kWideQkv);
      NormAndQuantize(pool, layer.attention_norm, x);
      const Product qkv[] = {{&layer.q, scratch_.q.data, scratch_.q.stride, false},
                             {&layer.k, scratch_.k.data, scratch_.k.stride, false},
                             {&layer.v, scratch_.v.data, scratch_.v.stride, false}};
      Multiply(pool, x, qkv);
      RotateAndStore(pool, batch, kv, l);
      Attend(pool, batch, kv, l, worker);
      x = scratch_.Over(scratch_.attended, rows, config_.q_width(), kWideOutput);
      QuantizeRows(pool, x);
      const Product o[] = {{&layer.o, scratch_.hidden.data, scratch_.hidden.stride, true}};
      Multiply(pool, x, o);
      x = scratch_.Over(scratch_.normed, rows, config_.width, kWideGateUp);
      NormAndQuantize(pool, layer.ffn_norm, x);
      const Product gate_up[] = {{&layer.gate, scratch_.gate.data, scratch_.gate.stride, false},
                                 {&layer.up, scratch_.up.data, scratch_.up.stride, false}};
      Multiply(pool, x, gate_up);
      x = scratch_.Over(scratch_.gate, rows, config_.ffn_width, kWideDown);
      SwiGlu(pool, x);
      const Product down[] = {{&layer.down, scratch_.hidden.data, scratch_.hidden.stride, true}};
      Multiply(pool, x, down);
    }
    Head(pool, batch, logits);
  });
}

void LlamaModel::PrepareStep(const ForwardBatch& batch) {
  CHECK_LE(static_cast<int64_t>(batch.token_ids.size()), limits_.rows_max);
  CHECK_LE(static_cast<int64_t>(batch.logit_rows.size()), limits_.logit_rows_max);
  attention_units_.clear();
  for (size_t s = 0; s < batch.spans.size(); ++s) {
    const ForwardSpan& span = batch.spans[s];
    CHECK_LE(int64_t{span.first_position} + span.rows, limits_.context);
    for (int32_t r = 0; r < span.rows; ++r)
      row_span_[static_cast<size_t>(span.first_row + r)] = static_cast<int32_t>(s);
    for (int32_t r = 0; r < span.rows; r += kAttentionRowsMax) attention_units_.push_back({static_cast<int32_t>(s), r});
  }
}

void LlamaModel::Embed(ComputePool& pool, const ForwardBatch& batch) {
  pool.For(static_cast<int64_t>(batch.token_ids.size()), [&](int64_t row) {
    UnpackRow(embedding_, batch.token_ids[static_cast<size_t>(row)], scratch_.hidden.Row(row));
  });
}

template <typename Make>
void LlamaModel::MakeActivations(ComputePool& pool, const Activations& x, Make make) {
  pool.For(x.rows, [&](int64_t row) {
    make(row);
    kernels_.quantize_row(x, row);
    if (x.rows == 1) QuantizeWideGroups(kernels_, x, 0);
  });
  if (x.rows > 1) pool.For(x.chunks(), [&](int64_t chunk) { QuantizeWideGroups(kernels_, x, chunk); });
}

void LlamaModel::NormAndQuantize(ComputePool& pool, const float* weight, Activations& out) {
  MakeActivations(pool, out, [&](int64_t row) {
    kernels_.rms_norm(scratch_.hidden.Row(row), weight, config_.norm_eps, config_.width, scratch_.normed.Row(row));
  });
}

void LlamaModel::QuantizeRows(ComputePool& pool, const Activations& x) {
  MakeActivations(pool, x, [](int64_t) {});
}

void LlamaModel::SwiGlu(ComputePool& pool, const Activations& x) {
  MakeActivations(pool, x, [&](int64_t row) {
    float* gate = scratch_.gate.Row(row);
    kernels_.silu_mul(gate, scratch_.up.Row(row), config_.ffn_width, gate);
  });
}

void LlamaModel::Multiply(ComputePool& pool, const Activations& x, std::span<const Product> products) {
  int64_t panels = 0;
  for (const Product& p : products) panels += p.weights->panels();
  // An even number of panels: a single row is multiplied two panels at a time.
  const int64_t unit = std::max<int64_t>(2, panels / (kUnitsPerThread * pool.threads()) / 2 * 2);
  int64_t units = 0;
  for (const Product& p : products) units += (p.weights->panels() + unit - 1) / unit;
  pool.For(units, [&](int64_t u) {
    for (const Product& p : products) {
      const int64_t count = (p.weights->panels() + unit - 1) / unit;
      if (u >= count) {
        u -= count;
        continue;
      }
      const MatMul op{*p.weights, x, p.out, p.out_stride, p.accumulate};
      return kernels_.matmul(op, u * unit, std::min(p.weights->panels(), (u + 1) * unit));
    }
  });
}

// Plain products and differences, no fused operation: the compiler may vectorise them, the bits stay.
void LlamaModel::Rotate(float* x, int heads, int64_t position) const {
  const int pairs = config_.rope.dims / 2;
  const float* cosine = rope_cos_.data() + position * pairs;
  const float* sine = rope_sin_.data() + position * pairs;
  const bool interleaved = config_.rope.pairing == RopeConfig::Pairing::kInterleaved;
  const int step = interleaved ? 2 : 1, other = interleaved ? 1 : pairs;
  for (int h = 0; h < heads; ++h, x += config_.head_dim) {
    for (int i = 0; i < pairs; ++i) {
      const float a = x[i * step], b = x[i * step + other];
      x[i * step] = a * cosine[i] - b * sine[i];
      x[i * step + other] = a * sine[i] + b * cosine[i];
    }
  }
}

void LlamaModel::RotateAndStore(ComputePool& pool, const ForwardBatch& batch, const KvPages& kv, int layer) {
  const int64_t page = int64_t{kPageTokens} * config_.head_dim;
  pool.For(static_cast<int64_t>(batch.token_ids.size()), [&](int64_t row) {
    const ForwardSpan& span = batch.spans[static_cast<size_t>(row_span_[static_cast<size_t>(row)])];
    const int64_t position = span.first_position + (row - span.first_row);
    Rotate(scratch_.q.Row(row), config_.heads, position);
    Rotate(scratch_.k.Row(row), config_.kv_heads, position);
    const int64_t block = batch.blocks[static_cast<size_t>(span.first_block + position / kPageTokens)];
    const int64_t at = (layer * kv.blocks + block) * config_.kv_heads * page;
    for (int h = 0; h < config_.kv_heads; ++h) {
      const int64_t element = int64_t{h} * config_.head_dim;
      kernels_.store_kv(scratch_.k.Row(row) + element, scratch_.v.Row(row) + element, config_.head_dim,
                        static_cast<int>(position % kPageTokens), kv.k + at + h * page, kv.v + at + h * page);
    }
  });
}

void LlamaModel::Attend(ComputePool& pool, const ForwardBatch& batch, const KvPages& kv, int layer, int worker) {
  const int64_t page = int64_t{kPageTokens} * config_.head_dim;
  const int64_t scratch = AttentionScratchFloats(config_.group_heads(), config_.head_dim);
  // Largest units last-come-first would balance better; (span, row block) major keeps a sequence's pages in cache.
  const auto units = static_cast<int64_t>(attention_units_.size()) * config_.kv_heads;
  pool.For(units, [&](int64_t u) {
    const AttentionUnit& unit = attention_units_[static_cast<size_t>(u / config_.kv_heads)];
    const ForwardSpan& span = batch.spans[static_cast<size_t>(unit.span)];
    const int64_t head = u % config_.kv_heads, row = span.first_row + unit.offset;
    const int64_t first = head * config_.group_heads() * config_.head_dim;
    const int64_t at = layer * kv.blocks * config_.kv_heads * page + head * page;
    kernels_.attend({scratch_.q.Row(row) + first, scratch_.q.stride, scratch_.attended.Row(row) + first,
                     scratch_.attended.stride, std::min(kAttentionRowsMax, span.rows - unit.offset),
                     span.first_position + unit.offset, config_.group_heads(), config_.head_dim,
                     1.0f / std::sqrt(static_cast<float>(config_.head_dim)), batch.blocks.data() + span.first_block,
                     kv.k + at, kv.v + at, config_.kv_heads * page, scratch_.attention + worker * scratch});
  });
}

void LlamaModel::Head(ComputePool& pool, const ForwardBatch& batch, float* logits) {
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  if (wanted == 0) return;
  const Activations x = scratch_.Over(scratch_.normed, wanted, config_.width, kWideHead);
  MakeActivations(pool, x, [&](int64_t i) {
    const int64_t row = batch.logit_rows[static_cast<size_t>(i)];
    kernels_.rms_norm(scratch_.hidden.Row(row), output_norm_, config_.norm_eps, config_.width, scratch_.normed.Row(i));
  });
  const Product product[] = {{&head_, logits, config_.vocab_size, false}};
  Multiply(pool, x, product);
}

}  // namespace headrace
