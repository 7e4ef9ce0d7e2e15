// Loading of a decoder: names and shapes are checked first, then all matrices are packed by all threads, or read as
// they were packed before.
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "base/check.h"
#include "base/log.h"
#include "kernels/formats.h"
#include "model/llama.h"
#include "model/pack_cache.h"
#include "model/weight_scales.h"
#include "tensor/dequantize.h"
#include "tensor/finite.h"

namespace headrace {
namespace {

constexpr int64_t kAlignment = 64;
// Panels that one unit of loading reads and packs: about 1 MB, one read call.
constexpr int64_t kReadBytes = 1 << 20;

constexpr TensorNames kRopeFactors{"rope_freqs.weight", "rope_freqs.weight"};
constexpr TensorNames kShortFactors{"rope_factors_short.weight", "rope_factors_short.weight"};
constexpr TensorNames kLongFactors{"rope_factors_long.weight", "rope_factors_long.weight"};

}  // namespace

class LlamaModel::Loader {
 public:
  Loader(LlamaModel& model, const ModelFile& file, ComputePool& pool, const LoadOptions& options)
      : model_(model), file_(file), pool_(pool), options_(options) {}

  Status Load() {
    const ModelConfig& c = model_.config_;
    HR_RETURN_IF_ERROR(Plan());
    HR_RETURN_IF_ERROR(CheckFrequencies(c.rope, rope_factors_));
    if (c.window_rope) HR_RETURN_IF_ERROR(CheckFrequencies(*c.window_rope, {}));
    if (options_.admit) HR_RETURN_IF_ERROR(options_.admit(static_cast<uint64_t>(bytes_), model_.scratch_bytes()));
    HR_RETURN_IF_ERROR(FillWeights());
    for (auto& [matrix, offset] : matrices_) matrix->data = model_.weights_.data() + offset;
    for (auto& [vector, offset] : vectors_) *vector = reinterpret_cast<const float*>(model_.weights_.data() + offset);
    if (tied_) model_.head_ = model_.embedding_;
    model_.FillRopeTable(c.rope, rope_factors_, &model_.rope_);
    if (c.window_rope) model_.FillRopeTable(*c.window_rope, {}, &model_.window_rope_);
    return {};
  }

 private:
  // One run of panels (or a float vector) to read and pack.
  struct Unit {
    const TensorInfo* tensor;
    int64_t offset;       // of the packed tensor
    int64_t first_panel;  // -1: a vector of floats
    int64_t panels;
    int64_t first_row = 0;  // of the tensor that holds the matrix,
    int64_t rows = 0;       // and how many are its own
    bool norm = false;      // of a vector: the weights of a norm
    WeightScales scales = {};
  };

  Status Plan() {
    const ModelConfig& c = model_.config_;
    model_.layers_.resize(static_cast<size_t>(c.layers));
    HR_RETURN_IF_ERROR(Matrix(kEmbeddingNames, 0, c.vocab_size, c.width, &model_.embedding_));
    HR_RETURN_IF_ERROR(Vector(kOutputNormNames, 0, c.width, &model_.output_norm_));
    HR_RETURN_IF_ERROR(PlanHead());
    for (int l = 0; l < c.layers; ++l) HR_RETURN_IF_ERROR(PlanLayer(l));
    HR_RETURN_IF_ERROR(ReadRopeFactors(&rope_factors_));
    return RefuseUnknownTensors();
  }

  std::string Name(const TensorNames& names, int layer) const {
    return fmt::format(fmt::runtime(file_.format() == ModelFile::Format::kGguf ? names.gguf : names.hugging_face),
                       layer);
  }

  Result<const TensorInfo*> Need(const TensorNames& names, int layer, std::vector<int64_t> shape) {
    const std::string name = Name(names, layer);
    const TensorInfo* tensor = file_.Find(name);
    if (tensor == nullptr)
      return Fail(ErrorCode::kCorruptData, fmt::format("tensor {} is missing from {}", name, file_.name()), name);
    if (tensor->shape != shape) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("tensor {} has shape [{}], but the configuration needs [{}]", name,
                              fmt::join(tensor->shape, ", "), fmt::join(shape, ", ")),
                  name);
    }
    HR_RETURN_IF_ERROR(ModelFile::CheckComputable(*tensor));
    used_.insert(name);
    return tensor;
  }

  // rows: 0 for a vector.
  int64_t Reserve(int64_t bytes, DType dtype, int64_t rows, int64_t columns) {
    const int64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    parts_.push_back(
        {static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes), rows, columns, static_cast<uint64_t>(dtype)});
    return offset;
  }

  Status Matrix(const TensorNames& names, int layer, int64_t rows, int64_t columns, PackedMatrix* out) {
    return Rows(names, layer, {rows, columns}, 0, rows, out);
  }

  // Rows [first, first + rows) of a tensor of `shape`.
  Status Rows(const TensorNames& names, int layer, std::vector<int64_t> shape, int64_t first, int64_t rows,
              PackedMatrix* out) {
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(names, layer, shape));
    const DTypeInfo& info = Info(tensor->dtype);
    const int64_t columns = tensor->columns();
    if (columns % info.block_elements != 0) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("tensor {}: {} columns are no multiple of {}'s {}", tensor->name, columns, info.name,
                              info.block_elements),
                  tensor->name);
    }
    HR_ASSIGN_OR_RETURN(const WeightScales scales, ScalesOf(*tensor));
    if (scales.tensor() != nullptr) used_.insert(scales.tensor()->name);
    *out = DescribePacked(tensor->dtype, rows, columns, nullptr);
    const int64_t offset = Reserve(PackedBytes(tensor->dtype, rows, columns), tensor->dtype, rows, columns);
    matrices_.emplace_back(out, offset);
    const int64_t run = std::max<int64_t>(1, kReadBytes / out->panel_bytes);
    for (int64_t p = 0; p < out->panels(); p += run)
      units_.push_back({tensor, offset, p, std::min(run, out->panels() - p), first, rows, false, scales});
    return {};
  }

  Result<WeightScales> ScalesOf(const TensorInfo& tensor) {
    has_float8_ |= HasFloatScales(tensor.dtype);
    return WeightScales::Find(file_, tensor, model_.config_.has_weight_scales);
  }

  // Nothing where the family has no such tensor. Scales of a vector are no part of any checkpoint, and not used.
  Status Vector(const TensorNames& names, int layer, int64_t size, const float** out, bool norm = true) {
    if (!names) return {};
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(names, layer, {size}));
    HR_RETURN_IF_ERROR(ScalesOf(*tensor));
    const int64_t offset = Reserve(size * 4, DType::kF32, 0, size);
    vectors_.emplace_back(out, offset);
    units_.push_back({tensor, offset, -1, 0, 0, size, norm});
    return {};
  }
  Status Bias(const TensorNames& names, int layer, int64_t size, const float** out) {
    return Vector(names, layer, size, out, /*norm=*/false);
  }

  // O-36: no output tensor means the embedding is the head, unless the configuration says that it is not tied.
  Status PlanHead() {
    const ModelConfig& c = model_.config_;
    const std::string name = Name(kHeadNames, 0);
    if (file_.Find(name) != nullptr) return Matrix(kHeadNames, 0, c.vocab_size, c.width, &model_.head_);
    if (file_.format() == ModelFile::Format::kSafetensors && !c.tied_head_declared) {
      return Fail(ErrorCode::kCorruptData, fmt::format("tensor {} is missing and tie_word_embeddings is false", name),
                  name);
    }
    tied_ = true;
    return {};
  }

  Status PlanLayer(int l) {
    const ModelConfig& c = model_.config_;
    const LayerNames& names = c.family->layer;
    Layer& layer = model_.layers_[static_cast<size_t>(l)];
    const bool slides = !c.slides.empty() && c.slides[static_cast<size_t>(l)] != 0;
    layer.rope = slides && c.window_rope ? &model_.window_rope_ : &model_.rope_;
    HR_RETURN_IF_ERROR(Vector(names.attention_norm, l, c.width, &layer.attention_norm));
    HR_RETURN_IF_ERROR(PlanQkv(names, l, layer));
    HR_RETURN_IF_ERROR(Matrix(names.o, l, c.width, c.q_width(), &layer.o));
    HR_RETURN_IF_ERROR(Vector(names.post_attention_norm, l, c.width, &layer.post_attention_norm));
    HR_RETURN_IF_ERROR(Vector(names.ffn_norm, l, c.width, &layer.ffn_norm));
    if (names.gate_up) {
      const std::vector<int64_t> shape{2 * int64_t{c.ffn_width}, c.width};
      HR_RETURN_IF_ERROR(Rows(names.gate_up, l, shape, 0, c.ffn_width, &layer.gate));
      HR_RETURN_IF_ERROR(Rows(names.gate_up, l, shape, c.ffn_width, c.ffn_width, &layer.up));
    } else {
      HR_RETURN_IF_ERROR(Matrix(names.gate, l, c.ffn_width, c.width, &layer.gate));
      HR_RETURN_IF_ERROR(Matrix(names.up, l, c.ffn_width, c.width, &layer.up));
    }
    HR_RETURN_IF_ERROR(Matrix(names.down, l, c.width, c.ffn_width, &layer.down));
    return Vector(names.post_ffn_norm, l, c.width, &layer.post_ffn_norm);
  }

  Status PlanQkv(const LayerNames& names, int l, Layer& layer) {
    const ModelConfig& c = model_.config_;
    const int64_t q = c.q_width(), kv = c.kv_width();
    if (names.qkv) {
      const std::vector<int64_t> shape{q + 2 * kv, c.width};
      HR_RETURN_IF_ERROR(Rows(names.qkv, l, shape, 0, q, &layer.q));
      HR_RETURN_IF_ERROR(Rows(names.qkv, l, shape, q, kv, &layer.k));
      HR_RETURN_IF_ERROR(Rows(names.qkv, l, shape, q + kv, kv, &layer.v));
    } else {
      HR_RETURN_IF_ERROR(Matrix(names.q, l, q, c.width, &layer.q));
      HR_RETURN_IF_ERROR(Matrix(names.k, l, kv, c.width, &layer.k));
      HR_RETURN_IF_ERROR(Matrix(names.v, l, kv, c.width, &layer.v));
    }
    HR_RETURN_IF_ERROR(Bias(names.q_bias, l, q, &layer.q_bias));
    HR_RETURN_IF_ERROR(Bias(names.k_bias, l, kv, &layer.k_bias));
    HR_RETURN_IF_ERROR(Bias(names.v_bias, l, kv, &layer.v_bias));
    HR_RETURN_IF_ERROR(Vector(names.q_norm, l, c.head_dim, &layer.q_norm));
    return Vector(names.k_norm, l, c.head_dim, &layer.k_norm);
  }

  // GGUF files have the factors as tensors: one, or LongRoPE's two of which one is taken.
  Status ReadRopeFactors(std::vector<float>* factors) {
    const RopeConfig& rope = model_.config_.rope;
    if (rope.scaling != RopeConfig::Scaling::kLongRope) {
      return file_.Find(kRopeFactors.gguf) == nullptr ? Status{} : ReadFactors(kRopeFactors, factors);
    }
    *factors = model_.long_factors() ? rope.long_factors : rope.short_factors;
    if (!factors->empty()) return {};
    std::vector<float> other;
    HR_RETURN_IF_ERROR(ReadFactors(kShortFactors, model_.long_factors() ? &other : factors));
    return ReadFactors(kLongFactors, model_.long_factors() ? factors : &other);
  }

  Status ReadFactors(const TensorNames& names, std::vector<float>* factors) {
    const int64_t pairs = model_.config_.rope.dims / 2;
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(names, 0, {pairs}));
    factors->resize(static_cast<size_t>(pairs));
    HR_RETURN_IF_ERROR(ReadVector(*tensor, factors->data()));
    for (float factor : *factors) {
      if (factor > 0) continue;
      return Fail(ErrorCode::kCorruptData, fmt::format("{} has a factor that is not positive", tensor->name),
                  tensor->name);
    }
    return {};
  }

  // Tables that other programs derive again and scales of activations are listed; anything else would change the answer
  // if it were left out.
  Status RefuseUnknownTensors() {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (!tensor.name.ends_with("inv_freq") && !tensor.name.ends_with("rotary_emb.freqs") &&
          !(has_float8_ && IsActivationScale(tensor))) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("tensor {} is not part of the {} architecture as supported here (its biases, "
                                "experts and adapters are not, unless all such models have them)",
                                tensor.name, model_.config_.architecture),
                    tensor.name);
      }
      model_.unused_tensors_.push_back(tensor.name);
    }
    return {};
  }

  Status ReadVector(const TensorInfo& tensor, float* out) const {
    std::vector<std::byte> bytes(tensor.bytes);
    HR_RETURN_IF_ERROR(file_.Read(tensor, 0, bytes));
    int64_t elements = 1;
    for (int64_t dim : tensor.shape) elements *= dim;
    DequantizeRow(tensor.dtype, bytes.data(), elements, out);
    for (int64_t i = 0; i < elements; ++i) {
      if (!std::isfinite(out[i])) return NotFinite(tensor, fmt::format(" at {}", i));
    }
    return {};
  }

  static Status NotFinite(const TensorInfo& tensor, const std::string& place) {
    return Fail(
        ErrorCode::kCorruptData,
        fmt::format("tensor {} has a {} that is not finite (NaN or infinity){}: the model would answer nonsense; "
                    "copy, pull or convert it again",
                    tensor.name, Info(tensor.dtype).block_elements > 1 ? "scale" : "value", place),
        tensor.name);
  }

  Status PackUnit(const Unit& unit, std::vector<std::byte>& buffer) const {
    std::byte* out = model_.weights_.data() + unit.offset;
    if (unit.first_panel < 0) {
      auto* values = reinterpret_cast<float*>(out);
      HR_RETURN_IF_ERROR(ReadVector(*unit.tensor, values));
      const bool offset = unit.norm && file_.format() == ModelFile::Format::kSafetensors;
      for (int64_t i = 0; i < unit.rows && offset; ++i) values[i] += model_.config_.family->hf_norm_offset;
      return {};
    }
    const TensorInfo& tensor = *unit.tensor;
    const int64_t row_bytes = static_cast<int64_t>(tensor.bytes) / tensor.rows(),
                  first_row = unit.first_panel * kPanelRows;
    const int64_t rows = std::min(unit.panels * kPanelRows, unit.rows - first_row);
    buffer.resize(static_cast<size_t>(rows * row_bytes));
    HR_RETURN_IF_ERROR(file_.Read(tensor, static_cast<uint64_t>((unit.first_row + first_row) * row_bytes), buffer));
    for (int64_t r = 0; r < rows; ++r) {
      if (AllFinite(tensor.dtype, buffer.data() + r * row_bytes, tensor.columns())) continue;
      return NotFinite(tensor, fmt::format(" in row {}", unit.first_row + first_row + r));
    }
    std::vector<float> scales;
    HR_RETURN_IF_ERROR(unit.scales.Read(file_, unit.first_row + first_row, rows, buffer.data(), &scales));
    for (int64_t p = 0; p < unit.panels; ++p) {
      PackPanel(tensor.dtype, tensor.columns(), buffer.data() + p * kPanelRows * row_bytes,
                std::min<int64_t>(kPanelRows, rows - p * kPanelRows), unit.first_panel + p, out,
                scales.empty() ? nullptr : scales.data() + p * kPanelRows * ScaleBlocks(tensor.columns()));
    }
    return {};
  }

  Status AllocateWeights() {
    HR_ASSIGN_OR_RETURN(model_.weights_, HugeBuffer::Allocate(static_cast<uint64_t>(bytes_), "the model's weights"));
    return {};
  }

  Status FillWeights() {
    HR_RETURN_IF_ERROR(AllocateWeights());
    if (options_.pack_folder.empty()) return PackAll();
    HR_ASSIGN_OR_RETURN(const PackCache cache, PackCache::Open(options_.pack_folder, file_, options_.content_hash,
                                                               parts_, static_cast<uint64_t>(bytes_)));
    const Status read = cache.Read(pool_, model_.weights_.data());
    if (read) return {};
    if (read.error().code != ErrorCode::kNotFound) {
      LOG_WARN("{} is not used and made again: {}", cache.file_name(), read.error().message);
      // What lies between the parts must be zeros again.
      model_.weights_ = HugeBuffer();
      HR_RETURN_IF_ERROR(AllocateWeights());
    }
    HR_RETURN_IF_ERROR(PackAll());
    const Status written = cache.Write(pool_, model_.weights_.data());
    if (written) {
      LOG_INFO("packed weights are kept as {}", cache.file_name());
    } else {
      LOG_WARN("packed weights are not kept ({}); the next start packs again", written.error().message);
    }
    return {};
  }

  Status PackAll() {
    std::vector<Status> failures(static_cast<size_t>(pool_.threads()));
    std::atomic<bool> failed{false};
    pool_.Run([&](int worker) {
      std::vector<std::byte> buffer;
      pool_.For(worker, static_cast<int64_t>(units_.size()), [&](int64_t u) {
        if (failed.load(std::memory_order_relaxed)) return;
        if (Status status = PackUnit(units_[static_cast<size_t>(u)], buffer); !status) {
          failures[static_cast<size_t>(worker)] = std::move(status);
          failed.store(true);
        }
      });
    });
    for (Status& status : failures) HR_RETURN_IF_ERROR(std::move(status));
    return {};
  }

  LlamaModel& model_;
  const ModelFile& file_;
  ComputePool& pool_;
  const LoadOptions& options_;
  bool tied_ = false;
  bool has_float8_ = false;
  std::vector<float> rope_factors_;
  int64_t bytes_ = 0;
  std::vector<PackedPart> parts_;  // in order of their offsets
  std::vector<std::pair<PackedMatrix*, int64_t>> matrices_;
  std::vector<std::pair<const float**, int64_t>> vectors_;
  std::vector<Unit> units_;
  std::set<std::string> used_;
};

Result<std::unique_ptr<LlamaModel>> LlamaModel::Load(const ModelFile& file, const ModelConfig& config,
                                                     const KernelTable& kernels, ComputePool& pool,
                                                     const Limits& limits, const LoadOptions& options) {
  CHECK_GT(limits.context, 0);
  CHECK_GT(limits.rows_max, 0);
  std::unique_ptr<LlamaModel> model(new LlamaModel(config, kernels, limits));
  HR_RETURN_IF_ERROR(model->AllocateScratch(pool.threads()));  // address space; its pages come with the first step
  HR_RETURN_IF_ERROR(Loader(*model, file, pool, options).Load());
  return model;
}

}  // namespace headrace
