// Qwen2 and Qwen2.5 (Yang et al., 2024): llama with biases on q, k and v; a window from layer max_window_layers on
// where use_sliding_window says so.
#include "model/families/family.h"

namespace headrace {
namespace {

constexpr LayerNames Names() {
  LayerNames names = kLlamaLayer;
  names.q_bias = {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias"};
  names.k_bias = {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias"};
  names.v_bias = {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias"};
  return names;
}

bool Slides(const HfSettings& json, int layer) { return layer >= json.Int("max_window_layers", 28); }

}  // namespace

constinit const Family kQwen2{
    .name = "qwen2",
    .architecture = "qwen2",
    .model_type = "qwen2",
    .layer = Names(),
    .read_hf = [](const HfSettings& json, ModelConfig& c) -> Status {
      if (!json.Bool("use_sliding_window", false)) return {};
      return ReadHfWindow(json, Slides, c);
    },
};

}  // namespace headrace
