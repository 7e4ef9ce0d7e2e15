#include "bench/model_cost.h"

#include <algorithm>
#include <string_view>

#include "kernels/kernel_table.h"

namespace headrace {

ModelCost CostOf(const ModelFile& file, const ModelConfig& config, KvType kv_type) {
  const bool gguf = file.format() == ModelFile::Format::kGguf;
  const std::string_view embedding = gguf ? "token_embd.weight" : "model.embed_tokens.weight";
  const std::string_view output = gguf ? "output.weight" : "lm_head.weight";
  const std::string_view head = file.Find(output) != nullptr ? output : embedding;
  ModelCost cost{.kv_bytes_per_token = config.KvBytesPerToken(kv_type)};
  for (const TensorInfo& t : file.tensors()) {
    if (t.shape.size() != 2 || t.name.ends_with("weight_scale") || t.name.ends_with("weight_scale_inv")) continue;
    const int64_t parameters = t.rows() * t.columns();
    if (t.name == head)
      cost.head_parameters = parameters;
    else if (t.name == embedding)
      continue;
    else
      cost.layer_parameters += parameters;
    const bool packs = Info(t.dtype).computable && t.columns() % std::max(32, Info(t.dtype).block_elements) == 0;
    cost.step_weight_bytes += packs ? static_cast<uint64_t>(PackedBytes(t.dtype, t.rows(), t.columns())) : t.bytes;
  }
  return cost;
}

}  // namespace headrace
