// Phi-3, Phi-3.5 and Phi-4-mini (Abdin et al., 2024): llama with q, k, v in one tensor and gate, up in another; a
// sliding window in all layers; long contexts by two lists of rope factors (LongRoPE, Ding et al., 2024).
#include "model/families/family.h"

namespace headrace {
namespace {

constexpr LayerNames Names() {
  LayerNames names = kLlamaLayer;
  names.q = names.k = names.v = names.gate = names.up = {};
  names.qkv = {"blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight"};
  names.gate_up = {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight"};
  return names;
}

Status ReadGguf(const GgufSettings& meta, ModelConfig& c) {
  c.window = meta.Int("attention.sliding_window", 0);
  c.slides.assign(static_cast<size_t>(c.layers), 1);
  return {};
}

Status ReadHf(const HfSettings& json, ModelConfig& c) {
  // Phi-4-mini turns a part of each head.
  double turned = json.Float("partial_rotary_factor", 1.0);
  if (const auto* rope = json.Object("rope_parameters"))
    turned = HfSettings(json.file(), *rope).Float("partial_rotary_factor", turned);
  c.rope.dims = static_cast<int>(c.head_dim * turned);
  return ReadHfWindow(json, [](const HfSettings&, int) { return true; }, c);
}

}  // namespace

constinit const Family kPhi3{
    .name = "phi3",
    .architecture = "phi3",
    .model_type = "phi3",
    .layer = Names(),
    .read_gguf = ReadGguf,
    .read_hf = ReadHf,
};

}  // namespace headrace
