// What a decoder of the llama family needs to know about its shape, read from GGUF metadata or a Hugging Face
// config.json. Unknown architectures, activations and rope scalings are refused by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/attention.h"
#include "weights/model_file.h"

namespace headrace {

// How positions turn pairs of a head's elements (Su et al., RoFormer, 2021).
struct RopeConfig {
  enum class Pairing { kInterleaved, kHalves };  // (2i, 2i+1) as GGUF stores llama; (i, i + n/2) as Hugging Face does
  enum class Scaling { kNone, kLinear, kLlama3, kYarn };
  Pairing pairing = Pairing::kInterleaved;
  Scaling scaling = Scaling::kNone;
  double base = 10000.0;
  int dims = 0;  // elements of a head that turn; even
  double factor = 1.0;
  double original_context = 0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0, beta_slow = 1.0;              // YaRN
  double attention_factor = 0;                           // YaRN; 0: 0.1 ln(factor) + 1
};

struct ModelConfig {
  std::string architecture;  // "llama"
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
  RopeConfig rope;

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

// The rotation per position of each pair, in radians: dims / 2 values. `factors` divides each (GGUF rope_freqs); may be
// empty. Also gives the factor that YaRN puts on sine and cosine (1 otherwise).
std::vector<double> RopeFrequencies(const RopeConfig& rope, const std::vector<float>& factors, double* magnitude);

}  // namespace headrace
