// Granite, dense (IBM, 2024): llama with four multipliers: of the embeddings, of what each block adds, of the attention
// scores, and a divisor of the logits.
#include "model/families/family.h"

namespace headrace {

constinit const Family kGranite{
    .name = "granite",
    .architecture = "granite",
    .model_type = "granite",
    .gguf_pairing = RopeConfig::Pairing::kInterleaved,
    .read_gguf = [](const GgufSettings& meta, ModelConfig& c) -> Status {
      // 0 stands for a multiplier that is not there.
      const auto set = [&](const char* key, float& scale) {
        if (const double value = meta.Float(key, 0); value != 0) scale = static_cast<float>(value);
      };
      set("embedding_scale", c.embedding_scale);
      set("residual_scale", c.residual_scale);
      set("attention.scale", c.attention_scale);
      set("logit_scale", c.logit_scale);
      c.logit_scale = 1 / c.logit_scale;
      return {};
    },
    .read_hf = [](const HfSettings& json, ModelConfig& c) -> Status {
      c.embedding_scale = static_cast<float>(json.Float("embedding_multiplier", 1));
      c.residual_scale = static_cast<float>(json.Float("residual_multiplier", 1));
      c.attention_scale = static_cast<float>(json.Float("attention_multiplier", 1));
      c.logit_scale = static_cast<float>(1 / json.Float("logits_scaling", 1));
      return {};
    },
};

}  // namespace headrace
