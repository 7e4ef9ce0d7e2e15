// Loading of the llama family: names and shapes are checked first, then all matrices are packed by all threads.
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <set>

#include "base/check.h"
#include "model/llama.h"
#include "tensor/dequantize.h"

namespace headrace {
namespace {

constexpr int64_t kAlignment = 64;
// Panels that one unit of loading reads and packs: about 1 MB, one read call.
constexpr int64_t kReadBytes = 1 << 20;

// The two spellings of each tensor; {} is the layer.
struct TensorNames {
  const char* gguf;
  const char* hugging_face;
};
constexpr TensorNames kEmbedding{"token_embd.weight", "model.embed_tokens.weight"};
constexpr TensorNames kOutputNorm{"output_norm.weight", "model.norm.weight"};
constexpr TensorNames kOutput{"output.weight", "lm_head.weight"};
constexpr TensorNames kAttentionNorm{"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"};
constexpr TensorNames kQ{"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"};
constexpr TensorNames kK{"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"};
constexpr TensorNames kV{"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"};
constexpr TensorNames kO{"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"};
constexpr TensorNames kFfnNorm{"blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"};
constexpr TensorNames kGate{"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"};
constexpr TensorNames kUp{"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"};
constexpr TensorNames kDown{"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"};
constexpr TensorNames kRopeFactors{"rope_freqs.weight", "rope_freqs.weight"};

}  // namespace

class LlamaModel::Loader {
 public:
  Loader(LlamaModel& model, const ModelFile& file, ComputePool& pool) : model_(model), file_(file), pool_(pool) {}

  Status Load() {
    const ModelConfig& c = model_.config_;
    model_.layers_.resize(static_cast<size_t>(c.layers));
    HR_RETURN_IF_ERROR(Matrix(kEmbedding, 0, c.vocab_size, c.width, &model_.embedding_));
    HR_RETURN_IF_ERROR(Vector(kOutputNorm, 0, c.width, &model_.output_norm_));
    HR_RETURN_IF_ERROR(PlanHead());
    for (int l = 0; l < c.layers; ++l) HR_RETURN_IF_ERROR(PlanLayer(l));
    std::vector<float> factors;
    HR_RETURN_IF_ERROR(ReadRopeFactors(&factors));
    HR_RETURN_IF_ERROR(RefuseUnknownTensors());
    HR_ASSIGN_OR_RETURN(model_.weights_, HugeBuffer::Allocate(static_cast<uint64_t>(bytes_), "the model's weights"));
    HR_RETURN_IF_ERROR(PackAll());
    for (auto& [matrix, offset] : matrices_) matrix->data = model_.weights_.data() + offset;
    for (auto& [vector, offset] : vectors_) *vector = reinterpret_cast<const float*>(model_.weights_.data() + offset);
    if (tied_) model_.head_ = model_.embedding_;
    model_.FillRopeTable(factors);
    return {};
  }

 private:
  // One run of panels (or a float vector) to read and pack.
  struct Unit {
    const TensorInfo* tensor;
    int64_t offset;       // of the packed tensor
    int64_t first_panel;  // -1: a vector of floats
    int64_t panels;
  };

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
    if (!Info(tensor->dtype).computable) {
      return Fail(ErrorCode::kUnsupported,
                  fmt::format("tensor {} has type {}, which is not supported; supported are F32, F16, BF16, Q4_0, "
                              "Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K",
                              name, Info(tensor->dtype).name),
                  name);
    }
    used_.insert(name);
    return tensor;
  }

  int64_t Reserve(int64_t bytes) {
    const int64_t offset = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return offset;
  }

  Status Matrix(const TensorNames& names, int layer, int64_t rows, int64_t columns, PackedMatrix* out) {
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(names, layer, {rows, columns}));
    const DTypeInfo& info = Info(tensor->dtype);
    if (columns % info.block_elements != 0) {
      return Fail(ErrorCode::kCorruptData,
                  fmt::format("tensor {}: {} columns are no multiple of {}'s {}", tensor->name, columns, info.name,
                              info.block_elements),
                  tensor->name);
    }
    *out = DescribePacked(tensor->dtype, rows, columns, nullptr);
    const int64_t offset = Reserve(PackedBytes(tensor->dtype, rows, columns));
    matrices_.emplace_back(out, offset);
    const int64_t run = std::max<int64_t>(1, kReadBytes / out->panel_bytes);
    for (int64_t p = 0; p < out->panels(); p += run)
      units_.push_back({tensor, offset, p, std::min(run, out->panels() - p)});
    return {};
  }

  Status Vector(const TensorNames& names, int layer, int64_t size, const float** out) {
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(names, layer, {size}));
    const int64_t offset = Reserve(size * 4);
    vectors_.emplace_back(out, offset);
    units_.push_back({tensor, offset, -1, 0});
    return {};
  }

  // O-36: no output tensor means the embedding is the head, unless the configuration says that it is not tied.
  Status PlanHead() {
    const ModelConfig& c = model_.config_;
    const std::string name = Name(kOutput, 0);
    if (file_.Find(name) != nullptr) return Matrix(kOutput, 0, c.vocab_size, c.width, &model_.head_);
    if (file_.format() == ModelFile::Format::kSafetensors && !c.tied_head_declared) {
      return Fail(ErrorCode::kCorruptData, fmt::format("tensor {} is missing and tie_word_embeddings is false", name),
                  name);
    }
    tied_ = true;
    return {};
  }

  Status PlanLayer(int l) {
    const ModelConfig& c = model_.config_;
    Layer& layer = model_.layers_[static_cast<size_t>(l)];
    HR_RETURN_IF_ERROR(Vector(kAttentionNorm, l, c.width, &layer.attention_norm));
    HR_RETURN_IF_ERROR(Matrix(kQ, l, c.q_width(), c.width, &layer.q));
    HR_RETURN_IF_ERROR(Matrix(kK, l, c.kv_width(), c.width, &layer.k));
    HR_RETURN_IF_ERROR(Matrix(kV, l, c.kv_width(), c.width, &layer.v));
    HR_RETURN_IF_ERROR(Matrix(kO, l, c.width, c.q_width(), &layer.o));
    HR_RETURN_IF_ERROR(Vector(kFfnNorm, l, c.width, &layer.ffn_norm));
    HR_RETURN_IF_ERROR(Matrix(kGate, l, c.ffn_width, c.width, &layer.gate));
    HR_RETURN_IF_ERROR(Matrix(kUp, l, c.ffn_width, c.width, &layer.up));
    return Matrix(kDown, l, c.width, c.ffn_width, &layer.down);
  }

  Status ReadRopeFactors(std::vector<float>* factors) {
    if (file_.Find(kRopeFactors.gguf) == nullptr) return {};
    const int64_t pairs = model_.config_.rope.dims / 2;
    HR_ASSIGN_OR_RETURN(const TensorInfo* tensor, Need(kRopeFactors, 0, {pairs}));
    factors->resize(static_cast<size_t>(pairs));
    HR_RETURN_IF_ERROR(ReadVector(*tensor, factors->data()));
    for (float factor : *factors) {
      if (!(factor > 0))
        return Fail(ErrorCode::kCorruptData, "rope_freqs.weight has a factor that is not positive", tensor->name);
    }
    return {};
  }

  // Tables that other programs derive again are listed; anything else would change the answer if it were left out.
  Status RefuseUnknownTensors() {
    for (const TensorInfo& tensor : file_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      if (!tensor.name.ends_with("inv_freq") && !tensor.name.ends_with("rotary_emb.freqs")) {
        return Fail(ErrorCode::kUnsupported,
                    fmt::format("tensor {} is not part of the llama architecture as supported here (biases, "
                                "experts and adapters are not)",
                                tensor.name),
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
      if (!std::isfinite(out[i]))
        return Fail(ErrorCode::kCorruptData, fmt::format("tensor {} has a value that is not finite", tensor.name),
                    tensor.name);
    }
    return {};
  }

  Status PackUnit(const Unit& unit, std::vector<std::byte>& buffer) const {
    std::byte* out = model_.weights_.data() + unit.offset;
    if (unit.first_panel < 0) return ReadVector(*unit.tensor, reinterpret_cast<float*>(out));
    const TensorInfo& tensor = *unit.tensor;
    const int64_t row_bytes = static_cast<int64_t>(tensor.bytes) / tensor.rows(),
                  first_row = unit.first_panel * kPanelRows;
    const int64_t rows = std::min(unit.panels * kPanelRows, tensor.rows() - first_row);
    buffer.resize(static_cast<size_t>(rows * row_bytes));
    HR_RETURN_IF_ERROR(file_.Read(tensor, static_cast<uint64_t>(first_row * row_bytes), buffer));
    for (int64_t p = 0; p < unit.panels; ++p) {
      PackPanel(tensor.dtype, tensor.columns(), buffer.data() + p * kPanelRows * row_bytes,
                std::min<int64_t>(kPanelRows, rows - p * kPanelRows), unit.first_panel + p, out);
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
  bool tied_ = false;
  int64_t bytes_ = 0;
  std::vector<std::pair<PackedMatrix*, int64_t>> matrices_;
  std::vector<std::pair<const float**, int64_t>> vectors_;
  std::vector<Unit> units_;
  std::set<std::string> used_;
};

Result<std::unique_ptr<LlamaModel>> LlamaModel::Load(const ModelFile& file, const ModelConfig& config,
                                                     const KernelTable& kernels, ComputePool& pool,
                                                     const Limits& limits) {
  CHECK_GT(limits.context, 0);
  CHECK_GT(limits.rows_max, 0);
  std::unique_ptr<LlamaModel> model(new LlamaModel(config, kernels, limits));
  HR_RETURN_IF_ERROR(Loader(*model, file, pool).Load());
  HR_RETURN_IF_ERROR(model->AllocateScratch(pool.threads()));
  return model;
}

}  // namespace headrace
