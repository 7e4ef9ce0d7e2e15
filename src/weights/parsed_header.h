// What the reader of one file hands to the builder of the model.
#pragma once

#include <cstdint>
#include <vector>

#include "weights/model_file.h"

namespace headrace {

struct ParsedHeader {
  std::vector<MetaEntry> metadata;  // in file order, keys distinct
  std::vector<TensorInfo> tensors;  // in file order; file_index is left 0, offsets are from the start of the file
  uint64_t header_bytes = 0;        // where the tensor data begins
  uint64_t meta_bytes = 0;          // what `metadata` takes in memory
};

}  // namespace headrace
