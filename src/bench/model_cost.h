// What one token of a model takes: multiplications and bytes. Pure; any thread.
#pragma once

#include <cstdint>

#include "model/model_config.h"
#include "weights/model_file.h"

namespace headrace {

struct ModelCost {
  int64_t layer_parameters = 0;  // of the matrices that every token is multiplied with
  int64_t head_parameters = 0;   // of the one that only rows with logits are multiplied with
  uint64_t step_weight_bytes =
      0;  // packed, that a step with logits reads: an embedding that is no head is not among them
  int64_t kv_bytes_per_token = 0;  // that attention reads for each token before

  // Operations of a step: two for each parameter and row.
  double Operations(double rows, double logit_rows) const {
    return 2 * (static_cast<double>(layer_parameters) * rows + static_cast<double>(head_parameters) * logit_rows);
  }
};

ModelCost CostOf(const ModelFile& file, const ModelConfig& config, KvType kv_type);

}  // namespace headrace
