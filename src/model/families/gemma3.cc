// Gemma 3, text (Gemma Team, 2025): embeddings scaled by sqrt(width), a norm before and after attention and
// feed-forward, a norm over each head of q and k, GeGLU, five layers with a sliding window and a rope of their own to
// each one that sees everything.
#include <cmath>

#include "model/families/family.h"
#include "tensor/half.h"

namespace headrace {
namespace {

constexpr int kPattern = 6;            // every sixth layer sees everything
constexpr double kGlobalBase = 1e6;    //
constexpr double kWindowBase = 10000;  // of the layers with a window, never stretched

constexpr LayerNames Names() {
  LayerNames names = kLlamaLayer;
  names.q_norm = {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight"};
  names.k_norm = {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight"};
  names.post_attention_norm = {"blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight"};
  names.ffn_norm = {"blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight"};
  names.post_ffn_norm = {"blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight"};
  return names;
}

void SetWindowRope(ModelConfig& c, double base) {
  RopeConfig rope;
  rope.pairing = c.rope.pairing;
  rope.dims = c.rope.dims;
  rope.base = base;
  c.window_rope = rope;
}

Status ReadGguf(const GgufSettings& meta, ModelConfig& c) {
  HR_RETURN_IF_ERROR(
      RefuseSetting("attn_logit_softcapping", meta.Float("attn_logit_softcapping", 0), "attention softcaps"));
  HR_RETURN_IF_ERROR(
      RefuseSetting("final_logit_softcapping", meta.Float("final_logit_softcapping", 0), "logit softcaps"));
  c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  // The 27B model alone scales its queries by width / heads (168) and not by the head dimension; files do not say it.
  const bool is_27b = c.layers == 62;
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(is_27b ? c.width / c.heads : c.head_dim));
  c.rope.base = meta.Float("rope.freq_base", kGlobalBase);
  c.window = meta.Int("attention.sliding_window", 0);
  if (c.window < 1)
    return Fail(ErrorCode::kCorruptData, "gemma3 needs attention.sliding_window", "gemma3.attention.sliding_window");
  const int64_t pattern = meta.Int("attention.sliding_window_pattern", kPattern);
  for (int l = 0; l < c.layers; ++l) c.slides.push_back(pattern < 1 || (l + 1) % pattern != 0);
  SetWindowRope(c, meta.Float("rope.freq_base_swa", kWindowBase));
  return {};
}

// The two ropes: in the newer spelling one object for each kind of layer.
Status ReadHfRopes(const HfSettings& json, ModelConfig& c) {
  const double window_base = json.Float("rope_local_base_freq", kWindowBase);
  const HfSettings::Json* parameters = json.Object("rope_parameters");
  const HfSettings::Json none = HfSettings::Json::object();
  const HfSettings by_kind(json.file(), parameters != nullptr ? *parameters : none);
  if (!json.Has("rope_theta") && !by_kind.Has("rope_theta")) c.rope.base = kGlobalBase;
  if (const auto* full = by_kind.Object("full_attention"))
    HR_RETURN_IF_ERROR(ReadHfRope(HfSettings(json.file(), *full), c.context, c.rope));
  SetWindowRope(c, window_base);
  if (const auto* sliding = by_kind.Object("sliding_attention"))
    HR_RETURN_IF_ERROR(ReadHfRope(HfSettings(json.file(), *sliding), c.context, *c.window_rope));
  return {};
}

Status ReadHf(const HfSettings& json, ModelConfig& c) {
  HR_RETURN_IF_ERROR(
      RefuseSetting("attn_logit_softcapping", json.Float("attn_logit_softcapping", 0), "attention softcaps"));
  HR_RETURN_IF_ERROR(
      RefuseSetting("final_logit_softcapping", json.Float("final_logit_softcapping", 0), "logit softcaps"));
  if (json.Bool("use_bidirectional_attention", false))
    return Fail(ErrorCode::kUnsupported, "bidirectional attention is not supported", "use_bidirectional_attention");
  if (!json.Has("head_dim")) c.head_dim = c.rope.dims = 256;
  // In bfloat16, as Gemma was trained and published, the scale is one too: 25.25 for 640. GGUF programs do not round
  // it.
  c.embedding_scale = std::sqrt(static_cast<float>(c.width));
  const TensorInfo* embedding = json.file().Find(kEmbeddingNames.hugging_face);
  if (embedding != nullptr && embedding->dtype == DType::kBF16)
    c.embedding_scale = Bf16ToFloat(FloatToBf16(c.embedding_scale));
  c.attention_scale = 1.0f / std::sqrt(static_cast<float>(json.Float("query_pre_attn_scalar", 256)));
  HR_RETURN_IF_ERROR(ReadHfRopes(json, c));
  return ReadHfWindow(
      json,
      [](const HfSettings& settings, int layer) {
        const int pattern = settings.Int("sliding_window_pattern", settings.Int("_sliding_window_pattern", kPattern));
        return pattern < 1 || (layer + 1) % pattern != 0;
      },
      c);
}

}  // namespace

constinit const Family kGemma3{
    .name = "gemma3",
    .architecture = "gemma3",
    .model_type = "gemma3_text",
    .layer = Names(),
    .gate = GateFunction::kGelu,
    .activation = "gelu_pytorch_tanh",
    .hf_norm_offset = 1,
    .read_gguf = ReadGguf,
    .read_hf = ReadHf,
};

}  // namespace headrace
