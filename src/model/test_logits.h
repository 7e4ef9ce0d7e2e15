// A model's logits without an engine. Only tests include this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/llama.h"

namespace headrace {

// The logits of every position of one sequence, in chunks of `chunk` rows. An error of loading is returned.
inline Result<std::vector<float>> LogitsOf(const ModelFile& file, const std::vector<int32_t>& ids, int64_t context,
                                           int32_t chunk) {
  HR_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(file));
  ComputePool pool(2);
  HR_ASSIGN_OR_RETURN(const auto model,
                      LlamaModel::Load(file, config, *UsableKernels().back(), pool,
                                       {.context = context, .rows_max = chunk, .logit_rows_max = chunk}));
  const auto count = static_cast<int32_t>(ids.size());
  std::vector<int32_t> blocks;
  for (int32_t b = 0; b * kPageTokens < count; ++b) blocks.push_back(b);
  const int64_t page_bytes = KvPageBytes(KvType::kInt16, config.head_dim);
  std::vector<std::byte> k(static_cast<size_t>(config.layers * config.kv_heads * page_bytes) * blocks.size()), v = k;
  std::vector<float> logits(ids.size() * static_cast<size_t>(config.vocab_size));
  for (int32_t first = 0; first < count; first += chunk) {
    const int32_t rows = std::min(chunk, count - first);
    std::vector<int32_t> wanted;
    for (int32_t r = 0; r < rows; ++r) wanted.push_back(r);
    const ForwardSpan span{0, rows, first, 0};
    model->Forward(
        pool,
        {std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(rows)), {&span, 1}, blocks, wanted},
        {KvType::kInt16, k.data(), v.data(), static_cast<int64_t>(blocks.size())},
        logits.data() + static_cast<int64_t>(first) * config.vocab_size);
  }
  return logits;
}

}  // namespace headrace
