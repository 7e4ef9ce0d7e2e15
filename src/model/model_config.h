// What a decoder needs to know about its shape, read from GGUF metadata or a Hugging Face config.json. Unknown
// architectures, activations and rope scalings are refused by name. What one family alone says is read in families/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "model/rope.h"
#include "weights/model_file.h"

namespace headrace {

struct Family;  // families/family.h

struct ModelConfig {
  const Family* family = nullptr;
  std::string architecture;  // the family's name
  std::string name;
  int layers = 0;
  int width = 0;  // embedding length
  int ffn_width = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int32_t vocab_size = 0;
  int64_t context = 0;  // longest sequence the model was trained for
  float norm_eps = 1e-5f;
  bool tied_head_declared = false;  // config says so; GGUF says it by leaving the head out
  bool has_weight_scales = false;   // of 8-bit floats, each in a tensor of its own: weight_scales.h
  RopeConfig rope;
  // Sliding windows: layers that see the last `window` tokens only, the query's own included. 0: none has one.
  int64_t window = 0;
  std::vector<uint8_t> slides;            // by layer; empty: none
  std::optional<RopeConfig> window_rope;  // of those layers, where it is another
  float attention_scale = 0;              // of the scores; 1 / sqrt(head_dim) in most families
  float embedding_scale = 1;
  float residual_scale = 1;  // of what attention and feed-forward add
  float logit_scale = 1;

  // 0: layer `l` sees everything.
  int64_t WindowOf(int l) const { return !slides.empty() && slides[static_cast<size_t>(l)] != 0 ? window : 0; }
  int q_width() const { return heads * head_dim; }
  int kv_width() const { return kv_heads * head_dim; }
  int group_heads() const { return heads / kv_heads; }
  // Bytes of K and V that one token takes in all layers.
  int64_t KvBytesPerToken(KvType type) const {
    return 2 * int64_t{layers} * kv_heads * KvPageBytes(type, head_dim) / kPageTokens;
  }
};

constexpr int kLayersMax = 1024;
constexpr int kWidthMax = 1 << 17;
constexpr int32_t kVocabularyMax = 1 << 22;
constexpr int64_t kContextMax = int64_t{1} << 24;

Result<ModelConfig> ReadModelConfig(const ModelFile& file);

}  // namespace headrace
