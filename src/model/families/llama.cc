// Llama 1 to 3 and what copies them (SmolLM, TinyLlama, ...; Touvron et al., 2023). GGUF files of this architecture
// pair neighbours for rope: the converter has permuted the rows of q and k. Mistral's GGUF files are of it too.
#include "model/families/family.h"

namespace headrace {

constinit const Family kLlama{
    .name = "llama",
    .architecture = "llama",
    .model_type = "llama",
    .gguf_pairing = RopeConfig::Pairing::kInterleaved,
};

}  // namespace headrace
