#include "model/step_scratch.h"

#include <algorithm>

#include "kernels/attention.h"

namespace headrace {
namespace {

constexpr int64_t kLine = 64;

// Hands out consecutive cache lines of a buffer. With no base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <typename T>
  void Take(T*& out, int64_t count) {
    if (base_ != nullptr) out = reinterpret_cast<T*>(base_ + used_);
    used_ += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
  }
  void Take(ScratchRows& out, int64_t rows, int64_t columns) {
    constexpr int64_t kFloats = kLine / 4;
    out.stride = (columns + kFloats - 1) / kFloats * kFloats + kFloats;
    Take(out.data, rows * out.stride);
  }
  int64_t used() const { return used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

void TakeActivations(Carver& carver, Activations& a, int64_t rows, int64_t columns) {
  const int64_t groups = columns / kGroup;
  carver.Take(a.quants, rows * columns + int64_t{kTileColumns} * kGroup);
  carver.Take(a.rest_quants, rows * columns + int64_t{kTileColumns} * kGroup);
  for (float** p : {&a.scale, &a.scaled_sum, &a.rest_scale, &a.rest_scaled_sum}) carver.Take(*p, rows * groups);
  for (int32_t** p : {&a.sum, &a.rest_sum, &a.rest_row}) carver.Take(*p, rows * groups);
  carver.Take(a.rest_first, (rows / kWideChunkRows + 1) * (groups + 1));
  carver.Take(a.wide, rows * groups);
  carver.Take(a.row_is_wide, rows);
}

Activations Shaped(Activations a, const ScratchRows& values, int64_t rows, int64_t columns, float wide_ratio) {
  a.rows = rows;
  a.columns = columns;
  a.values = values.data;
  a.value_stride = values.stride;
  a.wide_ratio = wide_ratio;
  return a;
}

}  // namespace

Result<StepScratch> StepScratch::Allocate(const ModelConfig& config, int64_t rows, int64_t logit_rows, int64_t own_rows,
                                          int64_t partial_pages, int threads) {
  StepScratch s;
  s.own_.resize(static_cast<size_t>(threads));
  const int64_t widest = std::max({config.width, config.q_width(), config.ffn_width});
  const auto lay_out = [&](std::byte* base) {
    Carver carver(base);
    for (ScratchRows* r : {&s.hidden, &s.normed}) carver.Take(*r, rows, config.width);
    carver.Take(s.wanted, logit_rows, config.width);
    for (ScratchRows* r : {&s.q, &s.attended}) carver.Take(*r, rows, config.q_width());
    for (ScratchRows* r : {&s.k, &s.v}) carver.Take(*r, rows, config.kv_width());
    for (ScratchRows* r : {&s.gate, &s.up}) carver.Take(*r, rows, config.ffn_width);
    TakeActivations(carver, s.activations_, rows, widest);
    for (Own& own : s.own_) {
      carver.Take(own.values, own_rows, config.width);
      TakeActivations(carver, own.activations, own_rows, widest);
    }
    carver.Take(s.attention, threads * AttentionScratchFloats(config.group_heads(), config.head_dim));
    carver.Take(s.partials, partial_pages * config.group_heads() * PartialFloats(config.head_dim));
    return carver.used();
  };
  HR_ASSIGN_OR_RETURN(s.buffer_, HugeBuffer::Allocate(static_cast<uint64_t>(lay_out(nullptr)), "a step's scratch"));
  lay_out(s.buffer_.data());
  return s;
}

Activations StepScratch::Over(const ScratchRows& values, int64_t rows, int64_t columns, float wide_ratio) const {
  return Shaped(activations_, values, rows, columns, wide_ratio);
}

Activations StepScratch::OwnOver(int worker, const ScratchRows& values, int64_t rows, int64_t columns,
                                 float wide_ratio) const {
  return Shaped(own_[static_cast<size_t>(worker)].activations, values, rows, columns, wide_ratio);
}

}  // namespace headrace
