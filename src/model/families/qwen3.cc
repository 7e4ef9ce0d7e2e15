// Qwen3, dense (Yang et al., 2025): llama with a norm over each head of q and k, and a head dimension of its own.
#include "model/families/family.h"

namespace headrace {
namespace {

constexpr LayerNames Names() {
  LayerNames names = kLlamaLayer;
  names.q_norm = {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"};
  names.k_norm = {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"};
  return names;
}

bool Slides(const HfSettings& json, int layer) { return layer >= json.Int("max_window_layers", 28); }

Status ReadHf(const HfSettings& json, ModelConfig& c) {
  if (!json.Has("head_dim")) c.head_dim = c.rope.dims = 128;
  if (!json.Bool("use_sliding_window", false)) return {};
  return ReadHfWindow(json, Slides, c);
}

}  // namespace

constinit const Family kQwen3{
    .name = "qwen3",
    .architecture = "qwen3",
    .model_type = "qwen3",
    .layer = Names(),
    .read_hf = ReadHf,
};

}  // namespace headrace
