// Mistral (Jiang et al., 2023): llama with a sliding window in all layers, where config.json has one. GGUF files of it
// call themselves llama and have no window.
#include "model/families/family.h"

namespace headrace {

constinit const Family kMistral{
    .name = "mistral",
    .model_type = "mistral",
    .read_hf = [](const HfSettings& json,
                  ModelConfig& c) { return ReadHfWindow(json, [](const HfSettings&, int) { return true; }, c); },
};

}  // namespace headrace
