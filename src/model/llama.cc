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

}  // namespace

LlamaModel::LlamaModel(const ModelConfig& config, const KernelTable& kernels, const Limits& limits)
    : config_(config), kernels_(kernels), limits_(limits) {}

void LlamaModel::AllocateScratch() {
  const size_t rows = static_cast<size_t>(limits_.rows_max);
  const size_t widest = static_cast<size_t>(std::max({config_.width, config_.q_width(), config_.ffn_width}));
  hidden_.resize(rows * static_cast<size_t>(config_.width));
  normed_.resize(rows * static_cast<size_t>(config_.width));
  q_.resize(rows * static_cast<size_t>(config_.q_width()));
  k_.resize(rows * static_cast<size_t>(config_.kv_width()));
  v_.resize(rows * static_cast<size_t>(config_.kv_width()));
  attended_.resize(rows * static_cast<size_t>(config_.q_width()));
  gate_.resize(rows * static_cast<size_t>(config_.ffn_width));
  up_.resize(rows * static_cast<size_t>(config_.ffn_width));
  const size_t groups = widest / kGroup;
  for (auto* v : {&quants_, &rest_quants_}) v->resize(rows * widest);
  for (auto* v : {&scale_, &scaled_sum_, &rest_scale_, &rest_scaled_sum_}) v->resize(rows * groups);
  for (auto* v : {&sum_, &rest_sum_, &wide_index_, &wide_row_}) v->resize(rows * groups);
  wide_.resize(rows * groups);
  row_is_wide_.resize(rows);
  wide_first_.resize((rows / kWideChunkRows + 1) * (groups + 1));
  row_span_.resize(rows);
  attention_units_.reserve(rows);
}

uint64_t LlamaModel::scratch_bytes() const {
  const auto bytes = [](const auto& v) { return v.size() * sizeof(v[0]); };
  return bytes(hidden_) + bytes(normed_) + bytes(q_) + bytes(k_) + bytes(v_) + bytes(attended_) + bytes(gate_) +
         bytes(up_) + 2 * (bytes(quants_) + bytes(scale_) + bytes(scaled_sum_) + bytes(sum_)) +
         bytes(attention_scratch_) + bytes(rope_cos_) + bytes(rope_sin_);
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
      Activations x = ActivationsOver(normed_, rows, config_.width);
      NormAndQuantize(pool, layer.attention_norm, x);
      const Product qkv[] = {{&layer.q, q_.data(), config_.q_width(), false},
                             {&layer.k, k_.data(), config_.kv_width(), false},
                             {&layer.v, v_.data(), config_.kv_width(), false}};
      Multiply(pool, x, qkv);
      RotateAndStore(pool, batch, kv, l);
      Attend(pool, batch, kv, l, worker);
      x = ActivationsOver(attended_, rows, config_.q_width());
      QuantizeRows(pool, x);
      const Product o[] = {{&layer.o, hidden_.data(), config_.width, true}};
      Multiply(pool, x, o);
      x = ActivationsOver(normed_, rows, config_.width);
      NormAndQuantize(pool, layer.ffn_norm, x);
      const Product gate_up[] = {{&layer.gate, gate_.data(), config_.ffn_width, false},
                                 {&layer.up, up_.data(), config_.ffn_width, false}};
      Multiply(pool, x, gate_up);
      x = ActivationsOver(gate_, rows, config_.ffn_width);
      SwiGlu(pool, x);
      const Product down[] = {{&layer.down, hidden_.data(), config_.width, true}};
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

Activations LlamaModel::ActivationsOver(const std::vector<float>& values, int64_t rows, int64_t columns) {
  return Activations{rows,
                     columns,
                     values.data(),
                     quants_.data(),
                     scale_.data(),
                     scaled_sum_.data(),
                     sum_.data(),
                     rest_quants_.data(),
                     rest_scale_.data(),
                     rest_scaled_sum_.data(),
                     rest_sum_.data(),
                     wide_.data(),
                     wide_first_.data(),
                     wide_index_.data(),
                     wide_row_.data(),
                     row_is_wide_.data()};
}

void LlamaModel::Embed(ComputePool& pool, const ForwardBatch& batch) {
  pool.For(static_cast<int64_t>(batch.token_ids.size()), [&](int64_t row) {
    UnpackRow(embedding_, batch.token_ids[static_cast<size_t>(row)], hidden_.data() + row * config_.width);
  });
}

template <typename Make>
void LlamaModel::MakeActivations(ComputePool& pool, const Activations& x, Make make) {
  pool.For(x.rows, [&](int64_t row) {
    make(row);
    kernels_.quantize_row(x, row);
    if (x.rows == 1) ListWideGroups(x);
  });
  if (x.rows > 1) pool.For(1, [&](int64_t) { ListWideGroups(x); });
}

void LlamaModel::NormAndQuantize(ComputePool& pool, const float* weight, Activations& out) {
  MakeActivations(pool, out, [&](int64_t row) {
    kernels_.rms_norm(hidden_.data() + row * config_.width, weight, config_.norm_eps, config_.width,
                      normed_.data() + row * config_.width);
  });
}

void LlamaModel::QuantizeRows(ComputePool& pool, const Activations& x) {
  MakeActivations(pool, x, [](int64_t) {});
}

void LlamaModel::SwiGlu(ComputePool& pool, const Activations& x) {
  MakeActivations(pool, x, [&](int64_t row) {
    float* gate = gate_.data() + row * config_.ffn_width;
    kernels_.silu_mul(gate, up_.data() + row * config_.ffn_width, config_.ffn_width, gate);
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
    Rotate(q_.data() + row * config_.q_width(), config_.heads, position);
    Rotate(k_.data() + row * config_.kv_width(), config_.kv_heads, position);
    const int64_t block = batch.blocks[static_cast<size_t>(span.first_block + position / kPageTokens)];
    const int64_t at = (layer * kv.blocks + block) * config_.kv_heads * page;
    for (int h = 0; h < config_.kv_heads; ++h) {
      const int64_t element = row * config_.kv_width() + h * config_.head_dim;
      kernels_.store_kv(k_.data() + element, v_.data() + element, config_.head_dim,
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
    const int64_t first = row * config_.q_width() + head * config_.group_heads() * config_.head_dim;
    const int64_t at = layer * kv.blocks * config_.kv_heads * page + head * page;
    kernels_.attend({q_.data() + first, config_.q_width(), attended_.data() + first, config_.q_width(),
                     std::min(kAttentionRowsMax, span.rows - unit.offset), span.first_position + unit.offset,
                     config_.group_heads(), config_.head_dim, 1.0f / std::sqrt(static_cast<float>(config_.head_dim)),
                     batch.blocks.data() + span.first_block, kv.k + at, kv.v + at, config_.kv_heads * page,
                     attention_scratch_.data() + worker * scratch});
  });
}

void LlamaModel::Head(ComputePool& pool, const ForwardBatch& batch, float* logits) {
  const auto wanted = static_cast<int64_t>(batch.logit_rows.size());
  if (wanted == 0) return;
  const Activations x = ActivationsOver(normed_, wanted, config_.width);
  MakeActivations(pool, x, [&](int64_t i) {
    const int64_t row = batch.logit_rows[static_cast<size_t>(i)];
    kernels_.rms_norm(hidden_.data() + row * config_.width, output_norm_, config_.norm_eps, config_.width,
                      normed_.data() + i * config_.width);
  });
  const Product product[] = {{&head_, logits, config_.vocab_size, false}};
  Multiply(pool, x, product);
}

}  // namespace headrace
