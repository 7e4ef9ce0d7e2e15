// The scales of 8-bit floats in Hugging Face checkpoints: a tensor beside X.weight says what its values are multiplied
// by. It is X.weight_scale_inv (transformers' "fp8", DeepSeek, Qwen) or X.weight_scale (compressed-tensors); under
// either name there is one scale for the tensor (shape [] or [1]), for each of R rows ([R] or [R, 1]) or for each block
// of 128 x 128 ([ceil(R / 128), ceil(C / 128)]), as F32, F16 or BF16.
//
// Activations are not quantised to 8-bit floats here, so that their scales (input_scale and its like) are not used.
// Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/families/settings.h"
#include "model/model_config.h"
#include "weights/model_file.h"

namespace headrace {

// config.json's quantization_config: sets c.has_weight_scales. Methods other than "fp8" and compressed-tensors of 8-bit
// floats, and other blocks than 128 x 128, are refused by name.
Status ReadQuantization(const HfSettings& json, ModelConfig& c);

class WeightScales {
 public:
  WeightScales() = default;
  // Nothing for weights that are no 8-bit floats, or that have no scales while those are not `required`: then the scale
  // is 1. `file` and `weights` outlive this.
  static Result<WeightScales> Find(const ModelFile& file, const TensorInfo& weights, bool required);

  const TensorInfo* tensor() const { return tensor_; }  // null: there are none
  // Those of rows [first_row, first_row + rows), as PackPanel takes them; empty where there are none. `bytes` are the
  // rows: a scale that is no positive number is refused, but for a zero over zeros.
  Status Read(const ModelFile& file, int64_t first_row, int64_t rows, const std::byte* bytes,
              std::vector<float>* out) const;

 private:
  Status TakeShape(const TensorInfo& weights);

  const TensorInfo* tensor_ = nullptr;
  int64_t columns_ = 0;       // of the weights
  int64_t rows_a_scale_ = 0;  // 0: one for all
  int64_t scales_a_row_ = 1;  // 1, or one for each block
};

// Whether the tensor is one scale of activations or of the KV cache.
bool IsActivationScale(const TensorInfo& tensor);

}  // namespace headrace
