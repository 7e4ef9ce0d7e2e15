// What differs between the families of decoders, as data: what their files call things, which tensors a layer has, and
// how their settings become a ModelConfig. The step is one for all of them. One file per family beside this.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/kernel_table.h"
#include "model/families/settings.h"
#include "model/model_config.h"

namespace headrace {

// The two spellings of a tensor; {} is the layer. Null: the family has no such tensor.
struct TensorNames {
  const char* gguf = nullptr;
  const char* hugging_face = nullptr;

  explicit operator bool() const { return gguf != nullptr; }
};

struct LayerNames {
  TensorNames attention_norm;
  TensorNames q, k, v;                 // or
  TensorNames qkv;                     // the rows of all three in one tensor
  TensorNames q_bias, k_bias, v_bias;  // [heads * head_dim]
  TensorNames q_norm, k_norm;          // [head_dim], over each head before it is rotated
  TensorNames o;
  TensorNames post_attention_norm;  // of what attention adds
  TensorNames ffn_norm;
  TensorNames gate, up;  // or
  TensorNames gate_up;   // the rows of both in one tensor
  TensorNames down;
  TensorNames post_ffn_norm;  // of what the feed-forward adds
};

// The names that nearly all families share.
constexpr TensorNames kEmbeddingNames{"token_embd.weight", "model.embed_tokens.weight"};
constexpr TensorNames kOutputNormNames{"output_norm.weight", "model.norm.weight"};
constexpr TensorNames kHeadNames{"output.weight", "lm_head.weight"};
constexpr LayerNames kLlamaLayer{
    .attention_norm = {"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight"},
    .q = {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight"},
    .k = {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight"},
    .v = {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight"},
    .o = {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight"},
    .ffn_norm = {"blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight"},
    .gate = {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight"},
    .up = {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight"},
    .down = {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight"},
};

struct Family {
  std::string_view name;                    // as messages say it
  std::string_view architecture;            // GGUF's general.architecture; "": no GGUF file is called so
  std::string_view model_type;              // config.json's
  LayerNames layer = kLlamaLayer;           //
  GateFunction gate = GateFunction::kSilu;  //
  std::string_view activation = "silu";     // how config.json calls it
  float hf_norm_offset = 0;                 // Hugging Face files hold the norms' weights less this; GGUF files do not
  RopeConfig::Pairing gguf_pairing = RopeConfig::Pairing::kHalves;
  // What the common settings do not say; null: nothing.
  Status (*read_gguf)(const GgufSettings& meta, ModelConfig& c) = nullptr;
  Status (*read_hf)(const HfSettings& json, ModelConfig& c) = nullptr;
};

extern const Family kGemma3, kGranite, kLlama, kMistral, kPhi3, kQwen2, kQwen3;

std::span<const Family* const> Families();
// Errors: kUnsupported, naming what is supported.
Result<const Family*> FamilyOfArchitecture(std::string_view architecture);
Result<const Family*> FamilyOfModelType(std::string_view model_type);

}  // namespace headrace
