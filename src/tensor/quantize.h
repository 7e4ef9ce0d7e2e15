// Reference quantisers, from floats to the stored form of each computable type: for tests and small conversions. Round
// to nearest within each block, no search for better scales, so the K types are valid but not the best.
// Pure function, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

// row: columns finite floats; out: RowBytes(type, columns) bytes of any alignment.
// REQUIRES: Info(type).computable, columns a multiple of block_elements.
void QuantizeRow(DType type, const float* row, int64_t columns, std::byte* out);

}  // namespace headrace
