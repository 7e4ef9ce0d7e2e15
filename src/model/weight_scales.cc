#include "model/weight_scales.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/formats.h"
#include "tensor/dequantize.h"

namespace headrace {
namespace {

constexpr float kLargest = 57344;  // of the values that a scale multiplies: E5M2's
constexpr const char* kRemedy = "copy, pull or convert it again";

Status Refuse(std::string message) { return Fail(ErrorCode::kUnsupported, std::move(message), "quantization_config"); }

// `key` is absent, null or [128, 128].
Status CheckBlock(const HfSettings& settings, const char* key) {
  const HfSettings::Json* block = settings.Array(key);
  if (block == nullptr || *block == HfSettings::Json::array({kScaleColumns, kScaleColumns})) return {};
  return Refuse(fmt::format("{} {} of quantization_config is not supported, only [{}, {}]", key, block->dump(),
                            kScaleColumns, kScaleColumns));
}

Status CheckCompressedTensors(const HfSettings& settings) {
  const std::string format = settings.String("format", "");
  if (format != "float-quantized" && format != "naive-quantized") {
    return Refuse(fmt::format(
        "compressed-tensors of format '{}' are not supported, only float-quantized (8-bit floats)", format));
  }
  const HfSettings::Json* groups = settings.Object("config_groups");
  if (groups == nullptr) return {};
  for (const HfSettings::Json& group : *groups) {
    if (!group.is_object()) continue;
    const HfSettings::Json* weights = HfSettings(settings.file(), group).Object("weights");
    if (weights != nullptr) HR_RETURN_IF_ERROR(CheckBlock(HfSettings(settings.file(), *weights), "block_structure"));
  }
  return {};
}

bool IsZero(const std::byte* values, int64_t count) {
  return std::all_of(values, values + count, [](std::byte b) { return (b & std::byte{0x7F}) == std::byte{0}; });
}

Status NoScale(const TensorInfo& tensor, float value, int64_t at) {
  return Fail(ErrorCode::kCorruptData,
              fmt::format("tensor {} has a scale of {} at {}: the model would answer nonsense; {}", tensor.name, value,
                          at, kRemedy),
              tensor.name);
}

}  // namespace

Status ReadQuantization(const HfSettings& json, ModelConfig& c) {
  const HfSettings::Json* object = json.Object("quantization_config");
  if (object == nullptr) return {};
  const HfSettings settings(json.file(), *object);
  const std::string method = settings.String("quant_method", "");
  c.has_weight_scales = true;
  if (method == "fp8") return CheckBlock(settings, "weight_block_size");
  if (method == "compressed-tensors") return CheckCompressedTensors(settings);
  return Refuse(
      fmt::format("models quantised by '{}' are not supported, only 8-bit floats by fp8 or compressed-tensors: use the "
                  "original model or a GGUF file of it",
                  method));
}

Result<WeightScales> WeightScales::Find(const ModelFile& file, const TensorInfo& weights, bool required) {
  WeightScales scales;
  if (!HasFloatScales(weights.dtype)) return scales;
  for (const char* suffix : {"_scale_inv", "_scale"}) {
    if (scales.tensor_ == nullptr) scales.tensor_ = file.Find(weights.name + suffix);
  }
  if (scales.tensor_ == nullptr) {
    if (!required) return scales;
    return Fail(ErrorCode::kCorruptData,
                fmt::format("tensor {} has type {}, but its scales ({}_scale_inv or _scale) are missing: {}",
                            weights.name, Info(weights.dtype).name, weights.name, kRemedy),
                weights.name);
  }
  HR_RETURN_IF_ERROR(scales.TakeShape(weights));
  return scales;
}

Status WeightScales::TakeShape(const TensorInfo& weights) {
  if (tensor_->dtype != DType::kF32 && tensor_->dtype != DType::kF16 && tensor_->dtype != DType::kBF16) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("tensor {} has type {}; scales are F32, F16 or BF16: {}", tensor_->name,
                            Info(tensor_->dtype).name, kRemedy),
                tensor_->name);
  }
  using Shape = std::vector<int64_t>;
  const Shape& shape = tensor_->shape;
  const int64_t rows = weights.rows();
  columns_ = weights.columns();
  const Shape blocks{ScaleBlocks(rows), ScaleBlocks(columns_)};
  if (shape == Shape{} || shape == Shape{1}) return {};
  if (shape == Shape{rows} || shape == Shape{rows, 1}) {
    rows_a_scale_ = 1;
  } else if (shape == blocks) {
    rows_a_scale_ = kScaleColumns;
    scales_a_row_ = blocks[1];
  } else {
    return Fail(ErrorCode::kCorruptData,
                fmt::format("tensor {} has shape [{}]; scales of {} have shape [1], [{}, 1] or [{}]: {}", tensor_->name,
                            fmt::join(shape, ", "), weights.name, rows, fmt::join(blocks, ", "), kRemedy),
                tensor_->name);
  }
  return {};
}

Status WeightScales::Read(const ModelFile& file, int64_t first_row, int64_t rows, const std::byte* bytes,
                          std::vector<float>* out) const {
  out->clear();
  if (tensor_ == nullptr) return {};
  const auto line = [&](int64_t row) { return rows_a_scale_ == 0 ? 0 : row / rows_a_scale_; };
  const int64_t first = line(first_row) * scales_a_row_, size = Info(tensor_->dtype).block_bytes;
  const int64_t count = (line(first_row + rows - 1) + 1) * scales_a_row_ - first;
  std::vector<std::byte> stored(static_cast<size_t>(count * size));
  HR_RETURN_IF_ERROR(file.Read(*tensor_, static_cast<uint64_t>(first * size), stored));
  std::vector<float> values(static_cast<size_t>(count));
  DequantizeRow(tensor_->dtype, stored.data(), count, values.data());
  for (int64_t r = 0; r < rows; ++r, bytes += columns_) {
    for (int64_t k = 0; k < columns_; k += kScaleColumns) {
      const int64_t at = line(first_row + r) * scales_a_row_ + (scales_a_row_ == 1 ? 0 : k / kScaleColumns);
      const float scale = values[static_cast<size_t>(at - first)];
      const bool is_scale = scale == 0 ? IsZero(bytes + k, std::min<int64_t>(kScaleColumns, columns_ - k))
                                       : scale > 0 && std::isfinite(scale * kLargest);
      if (!is_scale) return NoScale(*tensor_, scale, at);
      out->push_back(scale);
    }
  }
  return {};
}

bool IsActivationScale(const TensorInfo& tensor) {
  constexpr std::string_view kSuffixes[] = {".input_scale", ".activation_scale", ".k_scale", ".v_scale"};
  return tensor.rows() * tensor.columns() == 1 &&
         std::ranges::any_of(kSuffixes, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
}

}  // namespace headrace
